"""Streams without Spark: prepared rows, a fake source, and an oracle that joins everything fed so far in DuckDB."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from evenkeel.hashing import xxhash64
from evenkeel.state import SegmentCache
from evenkeel.state.table import merged_schema
from evenkeel.streaming.driver import Driver
from evenkeel.streaming.local import LocalExecutor
from evenkeel.streaming.opening import open_state
from evenkeel.streaming.spec import BandSpec, Comparison, JoinSpec, empty_result
from evenkeel.streaming.strategies import strategy_named
from evenkeel.streaming.windows import Window
from evenkeel.testing import assert_same_rows
from tests.oracle import duck

INPUTS = ("left", "right")
TYPES = {"k": pa.int64(), "s": pa.string(), "x": pa.int64(), "f": pa.float64(), "t": pa.int64(), "n": pa.int64()}
COLUMNS = {i: tuple(f"{i[0]}_{c}" for c in TYPES) for i in INPUTS}


@dataclass(frozen=True)
class Case:
    """A condition, as the engine takes it and as DuckDB does."""

    sql: str
    keys: tuple[str, ...] = ()
    null_safe: bool = False
    verify: tuple[Comparison, ...] = ()
    bands: tuple[tuple[str, float, float], ...] = ()
    checks: tuple[Comparison, ...] = ()


def _same(column, op="="):
    return Comparison(f"l_{column}", op, f"r_{column}")


CASES = {
    "equi": Case("l_k = r_k", ("k",)),
    "text": Case("l_s = r_s", ("s",), verify=(_same("s"),)),
    "composite": Case(
        "l_k IS NOT DISTINCT FROM r_k AND l_s IS NOT DISTINCT FROM r_s", ("k", "s"), True,
        (_same("k", "<=>"), _same("s", "<=>")),
    ),
    "float": Case("l_f = r_f", ("f",)),
    "band": Case("abs(l_x - r_x) <= 2", bands=(("x", -2.0, 2.0),)),
    "inequality": Case("l_x >= r_x + 3", bands=(("x", 3.0, np.inf),)),
    "two inequalities": Case("l_x <= r_x AND l_n >= r_n", bands=(("x", -np.inf, 0.0), ("n", 0.0, np.inf))),
    "equi and band": Case("l_k = r_k AND l_x - r_x BETWEEN -1 AND 4", ("k",), bands=(("x", -1.0, 4.0),)),
    "equi and residual": Case("l_k = r_k AND l_f < r_f", ("k",), checks=(_same("f", "<"),)),
    "theta": Case("l_s <> r_s", checks=(_same("s", "<>"),)),
    "cross": Case("true"),
}  # fmt: skip


def cases_for(strategy, window="none") -> list[str]:
    """The conditions that a strategy can run."""
    equality = [c for c in CASES if CASES[c].keys or window == "tumbling"]
    if getattr(strategy, "needs_band", False):
        return [c for c in CASES if CASES[c].bands]
    return equality if strategy.needs_equality else list(CASES)


def spec_of(case: Case, how="inner", window=None, lateness=0) -> JoinSpec:
    window = window or Window()
    verify = case.verify
    if window.kind == "tumbling":
        plain = [Comparison(f"l_{k}", "<=>" if case.null_safe else "=", f"r_{k}") for k in case.keys]
        verify = (*plain, Comparison("_w", "=", "_w"))
    bands = tuple(BandSpec(f"_pos{i}", lo, hi) for i, (_, lo, hi) in enumerate(case.bands))
    return JoinSpec(
        case.sql, how, COLUMNS, {i: tuple(str(t) for t in TYPES.values()) for i in INPUTS},
        bool(case.keys) or window.kind == "tumbling", verify, bands, case.checks, window, lateness,
        window.kind != "none",
    )  # fmt: skip


def prepare(rows: list[dict], input: str, case: Case, spec: JoinSpec) -> pa.Table:
    """What the Spark adapter does with Spark's own expressions."""
    table = pa.table({f"{input[0]}_{c}": pa.array([r[c] for r in rows], t) for c, t in TYPES.items()})
    values = {c: table[f"{input[0]}_{c}"] for c in TYPES}
    times = values["t"]
    if spec.time:
        table = table.append_column("_time", times)
    keys = [values[k] for k in case.keys]
    if spec.window.kind == "tumbling":
        window = pa.array([None if t is None else t // spec.window.size for t in times.to_pylist()], pa.int64())
        table = table.append_column("_w", window)
        keys.append(pa.chunked_array([window]))
    if spec.equality:
        null = np.zeros(len(table), dtype=bool)
        for k in keys if not case.null_safe else keys[len(case.keys) :]:
            null |= np.asarray(k.is_null())
        table = table.append_column("_key", pa.array(xxhash64(keys), mask=null))
    for i, (column, _, _) in enumerate(case.bands):
        table = table.append_column(f"_pos{i}", values[column].cast(pa.float64()))
    return table


@dataclass
class Stream:
    """A driver over a state folder, and what its sink holds; `crash` throws both engine objects away."""

    root: str
    case: Case
    spec: JoinSpec
    strategy: str = "hash"
    units: int = 3
    sink: dict[int, pa.Table] = field(default_factory=dict)
    fed: list[dict[str, list[dict]]] = field(default_factory=list)
    on_step: object = None
    moved: int = 1 << 24
    options: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.tactic = strategy_named(self.strategy) if isinstance(self.strategy, str) else self.strategy
        self.spec = replace(self.spec, rows=bool(self.spec.preserved) and self.tactic.copies)
        schemas = {i: prepare([], i, self.case, self.spec).schema for i in INPUTS}
        self.result = empty_result(self.spec, schemas)
        self.state_schema = merged_schema([*schemas.values(), pa.schema([("_row", pa.int64())])])
        self.open()

    def open(self):
        state = open_state(self.root, self.spec, self.tactic.name, self.units, {}, self.state_schema, "q")
        band = self.spec.bands[0] if getattr(self.tactic, "needs_band", False) else None
        options = {} if band is None else {"lo": band.lo, "hi": band.hi, "slack": band.slack}
        executor = LocalExecutor(self.spec, self.result, SegmentCache(self.root, f"{self.root}-cache"))
        self.driver = Driver(
            state, self.spec, self.tactic, self.units, executor, self.sink_batch, on_step=self.on_step,
            moved=self.moved, options={**options, **self.options},
        )  # fmt: skip
        self.driver.tiers = replace(self.driver.tiers, fanout=2, smallest=4)

    def sink_batch(self, results, epoch):
        self.sink[epoch] = results

    def feed(self, batch: dict[str, list[dict]]):
        self.fed.append(batch)
        return self.run(len(self.fed) - 1)

    def run(self, epoch):
        rows = self.fed[epoch]
        return self.driver.run(epoch, {i: prepare(rows[i], i, self.case, self.spec) for i in INPUTS})

    def results(self) -> pa.Table:
        tables = [self.sink[e] for e in sorted(self.sink)]
        return pa.concat_tables(tables) if tables else self.result.empty_table()


def oracle(stream: Stream) -> tuple[list[tuple], dict[str, int]]:
    """The batch join of all rows that came in time, and how many came late; written without the engine."""
    spec, kept, late = stream.spec, {i: [] for i in INPUTS}, {i: 0 for i in INPUTS}
    newest, mark, before = {i: None for i in INPUTS}, None, None
    for batch in stream.fed:
        before = mark
        for i in INPUTS:
            for row in batch[i]:
                if spec.time and (row["t"] is None or (mark is not None and row["t"] < mark)):
                    late[i] += 1
                else:
                    kept[i].append(row)
        if spec.time:
            for i in INPUTS:
                times = [r["t"] for r in batch[i] if r["t"] is not None] + [t for t in [newest[i]] if t is not None]
                newest[i] = max(times, default=None)
            if all(t is not None for t in newest.values()):
                now = min(newest.values()) - spec.lateness
                mark = now if mark is None else max(mark, now)
    on = stream.case.sql
    size = spec.window.size
    if spec.window.kind == "sliding":
        on += f" AND abs(l_t - r_t) <= {size}"
    elif spec.window.kind == "tumbling":
        on += f" AND floor(l_t / {size}) = floor(r_t / {size})"
    due = None
    if before is not None:
        due = before - size if spec.window.kind == "sliding" else before // max(size, 1) * size
    tables = {
        i: pa.table({f"{i[0]}_{c}": pa.array([r[c] for r in kept[i]], t) for c, t in TYPES.items()}) for i in INPUTS
    }
    with duck(l=tables["left"], r=tables["right"]) as db:
        rows = []
        if spec.pairs:
            rows += db.execute(f"SELECT * FROM l JOIN r ON {on}").fetchall()
        nulls = [None] * len(TYPES)
        if spec.how in ("left", "full"):
            found = db.execute(f"SELECT * FROM l WHERE l_t < {due if due is not None else -(10**9)} AND NOT EXISTS "
                               f"(SELECT 1 FROM r WHERE {on})").fetchall()  # fmt: skip
            rows += [(*r, *nulls) for r in found]
        if spec.how in ("right", "full"):
            found = db.execute(f"SELECT * FROM r WHERE r_t < {due if due is not None else -(10**9)} AND NOT EXISTS "
                               f"(SELECT 1 FROM l WHERE {on})").fetchall()  # fmt: skip
            rows += [(*nulls, *r) for r in found]
        if spec.how in ("left_semi", "left_anti"):
            word = "" if spec.how == "left_semi" else "NOT"
            rows += db.execute(f"SELECT * FROM l WHERE l_t < {due if due is not None else -(10**9)} AND {word} EXISTS "
                               f"(SELECT 1 FROM r WHERE {on})").fetchall()  # fmt: skip
    return rows, late


class Crash(Exception):
    pass


def feed_through(
    strategy, case, window, how, batches, lateness=0, crashes=(), moved=1 << 24, check=lambda stream: None
) -> Stream:
    """All batches through a new stream, against the oracle. `crashes` are (epoch, step) to die at, once each; `check`
    looks at the stream after every epoch."""
    root = tempfile.mkdtemp(prefix="evenkeel-test-")
    left = list(crashes)

    def on_step(step, epoch):
        if (epoch, step) in left:
            left.remove((epoch, step))
            raise Crash

    try:
        spec = spec_of(CASES[case], how, window, lateness)
        stream = Stream(f"{root}/state", CASES[case], spec, strategy, units=3, on_step=on_step, moved=moved)
        for epoch, batch in enumerate(batches):
            stream.fed.append(batch)
            while True:
                try:
                    stream.run(epoch)
                    break
                except Crash:
                    stream.open()
            assert stream.driver.run(epoch, None) is None, "a replayed batch was not skipped"
            check(stream)
        expected, late = oracle(stream)
        assert_same_rows(stream.results(), expected)
        assert stream.driver.state.snapshot.progress["totals"]["late"] == late
        return stream
    finally:
        shutil.rmtree(root)
