"""The epoch loop: it owns order, progress and recovery, and knows neither Spark nor any strategy's inside.

    1 begin    a committed epoch is skipped; an epoch that leaves a gap is refused
    2 route    by the routing table of the last commit
    3 join     the executor runs the units; results are handed to the sink with the epoch's number
    4 sink     results are durable, or the epoch is run again
    5 commit   one Delta commit: segments, routing table, watermark, counters, transaction (query, epoch)
    6 return   Spark commits its offsets

Invariant: a result of epoch e is in an idempotent sink exactly once if e is committed, and at most once if not:
a crash before 5 repeats the epoch from the same version of the state, a crash after 5 skips it.
Time is passed in. A test may stop the loop at any step through `on_step`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from evenkeel.errors import StateMismatch
from evenkeel.state import Segment, Snapshot, StateTable, Tiers
from evenkeel.state.segment import ROW
from evenkeel.streaming.due import Asking, Due, asking
from evenkeel.streaming.spec import INPUTS, JoinSpec, check_same
from evenkeel.streaming.strategies import Loads, RoutingTable, Strategy, table_from_json
from evenkeel.streaming.strategies.base import UnitLoad
from evenkeel.streaming.unit import UnitReport, UnitTask
from evenkeel.streaming.windows import watermark

STEPS = ("begin", "routed", "joined", "sunk", "reported", "committed", "cleaned")
"""Where an epoch can be stopped, in order."""
VACUUM_EVERY = 64
ARCHIVE = 10
"""A merged segment spans at most a tenth of the window: BiStream's archive period, section 6.2."""


class Executor(Protocol):
    """Runs the units of an epoch, somewhere."""

    def start(self, plan: EpochPlan, batch: Any) -> Any:
        """The results of the epoch, possibly not computed yet."""
        ...

    def finish(self, plan: EpochPlan) -> list[UnitReport]:
        """The reports of all units, each unit once; computes what the sink did not ask for."""
        ...

    def forget(self, epoch: int, removed: Sequence[Segment]) -> None:
        """The epoch is committed; these segments will not be asked for again."""
        ...


Sink = Callable[[Any, int], None]


@dataclass(frozen=True)
class EpochPlan:
    epoch: int
    table: RoutingTable
    tasks: tuple[UnitTask, ...]
    watermark: int | None
    due: Due = (None, None)
    """Preserved rows whose partners are in several units, and that are shown now unless one matches."""

    def asking(self, spec: JoinSpec) -> list[Asking]:
        """The segments they are in."""
        return asking([s for t in self.tasks for held in t.segments.values() for s in held], self.due, spec)


@dataclass
class EpochReport:
    """What an epoch did, for people."""

    epoch: int
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    emitted: int = 0
    sent: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    segments: int = 0
    watermark: int | None = None
    units: list[UnitReport] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        return sum(self.rows.values()) / self.seconds if self.seconds > 0 else 0.0


class Driver:
    def __init__(
        self,
        state: StateTable,
        spec: JoinSpec,
        strategy: Strategy,
        units: int,
        executor: Executor,
        sink: Sink,
        *,
        options: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[str, int], None] | None = None,
    ) -> None:
        self.state, self.spec, self.strategy = state, spec, strategy
        self.executor, self.sink, self.clock = executor, sink, clock
        self.on_step = on_step or (lambda step, epoch: None)
        progress = state.snapshot.progress
        self.table: RoutingTable = (
            table_from_json(progress["routing"]) if progress else strategy.start(INPUTS, units, options or {})
        )
        period = spec.window.size // ARCHIVE if spec.window.kind != "none" else None
        self.tiers = Tiers(period=period) if period is None else Tiers(period=max(1, period))
        self.last: EpochReport | None = None
        self.loads: Loads | None = None

    def run(self, epoch: int, batch: Any) -> EpochReport | None:
        """One micro-batch. None if it had been committed before."""
        started = self.clock()
        before = self.state.snapshot
        if epoch <= before.epoch:
            return None
        if epoch > before.epoch + 1:
            raise StateMismatch.behind(self.state.root, before.epoch, epoch)
        self.on_step("begin", epoch)
        plan = self.plan(epoch, before)
        self.on_step("routed", epoch)
        results = self.executor.start(plan, batch)
        self.on_step("joined", epoch)
        self.sink(results, epoch)
        self.on_step("sunk", epoch)
        reports = self.executor.finish(plan)
        self.on_step("reported", epoch)
        removed = self._commit(plan, before, reports)
        self.on_step("committed", epoch)
        self.executor.forget(epoch, removed)
        if epoch % VACUUM_EVERY == VACUUM_EVERY - 1:
            self.state.vacuum()
        self.on_step("cleaned", epoch)
        self.last = self._report(plan, reports, self.clock() - started)
        return self.last

    def plan(self, epoch: int, before: Snapshot) -> EpochPlan:
        mark = before.progress.get("watermark")
        due: Due = (None, None)
        if self.spec.preserved:
            window = self.spec.window
            due = window.useless_before(before.progress.get("watermark_before")), window.useless_before(mark)
        held: dict[tuple[int, str], list[Segment]] = {}
        for s in before.segments:
            held.setdefault((s.unit, s.input), []).append(s)
        merges = self.tiers.plan(before.segments, before.progress.get("fresh", 0))
        tasks = tuple(
            UnitTask(
                u, epoch, self.state.root, {i: tuple(held.get((u, i), ())) for i in INPUTS}, mark,
                due if self.strategy.together else (None, None),
                {i: tuple(merges.get((u, i), ())) for i in INPUTS},
            )
            for u in range(self.table.units)
        )  # fmt: skip
        return EpochPlan(epoch, self.table, tasks, mark, (None, None) if self.strategy.together else due)

    def _commit(self, plan: EpochPlan, before: Snapshot, reports: Sequence[UnitReport]) -> list[Segment]:
        progress = before.progress
        newest: dict[str, int | None] = {}
        for i in INPUTS:
            seen = [progress.get("newest", {}).get(i), *(r.newest.get(i) for r in reports)]
            newest[i] = max((t for t in seen if t is not None), default=None)
        mark = watermark(newest, self.spec.lateness) if self.spec.time else None
        old = progress.get("watermark")
        mark = old if mark is None else mark if old is None else max(mark, old)
        replaced = {s.path for r in reports for s in r.removed}
        useless = self._useless_before(old, mark)
        expired = [s for s in before.segments if s.path not in replaced and _is_older(s, useless)]
        added = [s for r in reports for s in r.added if not _is_older(s, useless)]
        removed = [s for r in reports for s in r.removed] + expired
        totals = progress.get("totals", {})
        self.loads = Loads(plan.epoch, [_load(r) for r in reports])
        doc = {
            "epoch": plan.epoch,
            "routing": self.table.to_json(),
            "newest": newest,
            "watermark": mark,
            "watermark_before": old,
            "fresh": sum(sum(r.fresh.values()) for r in reports),
            "totals": {
                "rows": _sum(totals.get("rows"), [r.rows for r in reports]),
                "late": _sum(totals.get("late"), [r.late for r in reports]),
                "pairs": totals.get("pairs", 0) + sum(r.pairs for r in reports),
                "emitted": totals.get("emitted", 0) + sum(r.emitted for r in reports),
            },
        }
        self.state.commit(plan.epoch, added, removed, doc)
        return removed

    def _useless_before(self, old: int | None, mark: int | None) -> int | None:
        """Segments that end before this time may go: Theorem 1.

        Where unmatched rows are shown, rows are probed once more in the epoch after they are due, so partners stay
        for as long as that may need them.
        """
        window = self.spec.window
        if not self.spec.preserved:
            return window.useless_before(mark)
        due = window.useless_before(old)
        return None if due is None else due - (window.size if window.kind == "sliding" else 0)

    def _report(self, plan: EpochPlan, reports: Sequence[UnitReport], seconds: float) -> EpochReport:
        now = self.state.snapshot
        return EpochReport(
            plan.epoch,
            seconds,
            _sum(None, [r.rows for r in reports]),
            _sum(None, [r.late for r in reports]),
            sum(r.pairs for r in reports),
            sum(r.emitted for r in reports),
            sum(sum(r.received.values()) for r in reports),
            now.rows,
            now.size,
            len(now.segments),
            now.progress.get("watermark"),
            list(reports),
        )


def open_state(
    root: str, spec: JoinSpec, strategy: str, units: int, options: Mapping[str, int], schema: Any, query: str
) -> StateTable:
    """The state at `root`, made if there is none, refused if it was written for another join."""
    now = _plain({"spec": spec.to_json(), "strategy": strategy, "units": units, "options": dict(options)})
    state = StateTable.find(root)
    if spec.rows:
        schema = schema.append(pa.field(ROW, pa.int64()))
    if state is None:
        return StateTable.create(root, schema, {"query": query, **now})
    before = state.description
    check_same(before["spec"], now["spec"])
    if before["units"] != now["units"]:
        raise StateMismatch.changed("number of units", before["units"], now["units"])
    if (before["strategy"], before["options"]) != (now["strategy"], now["options"]):
        raise StateMismatch.changed("strategy", _named(before), _named(now))
    state.writable()
    return state


def _named(doc: Mapping[str, Any]) -> str:
    options = ", ".join(f"{k}={v}" for k, v in doc["options"].items())
    return f"{doc['strategy']}({options})" if options else str(doc["strategy"])


def _plain(doc: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from JSON."""
    return dict(json.loads(json.dumps(doc)))


def _is_older(s: Segment, time: int | None) -> bool:
    return time is not None and s.max_time is not None and s.max_time < time


def _sum(before: Mapping[str, int] | None, parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {i: (before or {}).get(i, 0) + sum(p.get(i, 0) for p in parts) for i in INPUTS}


def _load(r: UnitReport) -> UnitLoad:
    return UnitLoad(r.unit, r.stored, r.received, r.probing, r.pairs, r.seconds)
