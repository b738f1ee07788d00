"""One unit in one epoch: probe what it holds, join the epoch's own rows, write what it is to hold, report.

    for each input, in order:   its rows probe the other inputs' segments, and what earlier inputs store now
    rows that are due:          preserved rows that can find no more partners, where the unit holds all they could have
    rows to store:              one new segment an input; segments whose tier is full become one
    a migration's share:        segments cut by where the next routing table stores their rows (`moving.py`)
    report:                     segments added and removed, rows counted, newest times

Invariant: results and report are functions of the segments and the rows alone, so an attempt that is run again gives
the same; what it wrote before is never referred to. Memory: the unit's rows of the epoch and one piece of pairs.
Source: BiStream, sections 3.2.1 (joiner) and 3.3 (chained index).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenkeel.state import Segment, SegmentCache, write_segment
from evenkeel.state.migration import Stage
from evenkeel.state.segment import KEY, ROW, TIME
from evenkeel.streaming.due import Due, are_due, asking, fitted, matches, shown
from evenkeel.streaming.joiner import PAIRS, Run, probe, sort
from evenkeel.streaming.key_loads import heaviest_keys
from evenkeel.streaming.moving import Mover, Moving, with_rows
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.strategies.base import PRIMARY, PROBE, STORE, KeyLoad
from evenkeel.types import Bool, Int64

BATCH = 1 << 16
"""Rows of a result batch; the last one may be smaller."""


@dataclass(frozen=True)
class UnitTask:
    """What a unit needs to know of the epoch."""

    unit: int
    epoch: int
    root: str
    segments: Mapping[str, tuple[Segment, ...]]
    watermark: int | None = None
    due: Due = (None, None)
    """Preserved rows that the unit settles now."""
    merges: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    """By input, segments that become one."""
    keys: int = 0
    """How many of its heaviest keys to report."""
    rate: float = 0.0
    """The share of rows to report in a sample."""
    moving: Moving | None = None


@dataclass
class UnitReport:
    """What a unit did; it becomes part of the commit, or of nothing."""

    unit: int
    epoch: int
    rows: dict[str, int] = field(default_factory=dict)
    """Input rows, each counted in one unit."""
    late: dict[str, int] = field(default_factory=dict)
    null_keys: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    stored_now: dict[str, int] = field(default_factory=dict)
    """Of them, rows that the epoch brought."""
    probing: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int | None] = field(default_factory=dict)
    pairs: int = 0
    emitted: int = 0
    """Rows of the result that are no pairs: unmatched, or matched once for all."""
    added: list[Segment] = field(default_factory=list)
    removed: list[Segment] = field(default_factory=list)
    seconds: float = 0.0
    keys: dict[str, list[KeyLoad]] = field(default_factory=dict)
    sample: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    stage: Stage | None = None
    """What it did for a migration."""

    def to_json(self) -> dict[str, Any]:
        doc = dict(self.__dict__)
        doc["keys"] = {i: [[k.key, k.stored, k.stored_now, k.probing] for k in ks] for i, ks in self.keys.items()}
        doc["stage"] = None if self.stage is None else self.stage.to_json()
        doc["added"] = [s.to_json() for s in self.added]
        doc["removed"] = [s.to_json() for s in self.removed]
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> UnitReport:
        report = cls(**doc)
        report.added = [Segment.from_json(s) for s in doc["added"]]
        report.removed = [Segment.from_json(s) for s in doc["removed"]]
        report.keys = {i: [KeyLoad(*k) for k in ks] for i, ks in doc["keys"].items()}
        report.sample = {i: [(float(x), int(h)) for x, h in rows] for i, rows in doc["sample"].items()}
        report.stage = None if doc["stage"] is None else Stage.from_json(doc["stage"])
        return report


class UnitEpoch:
    """Run it by iterating over `results`; `report` is complete when they are exhausted."""

    def __init__(self, task: UnitTask, spec: JoinSpec, cache: SegmentCache) -> None:
        self.task, self.spec, self.cache = task, spec, cache
        self.report = UnitReport(task.unit, task.epoch)
        self._runs: dict[str, Run] = {}

    def results(self, rows: Mapping[str, tuple[pa.Table, Int64]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """`rows` by input: prepared rows and their placement codes. `schema` is the result's."""
        started = time.perf_counter()
        pieces: list[pa.Table] = []
        waiting = 0
        for piece in self._pieces(rows, schema):
            pieces.append(piece)
            waiting += len(piece)
            if waiting >= BATCH:
                yield from pa.concat_tables(pieces).combine_chunks().to_batches(max_chunksize=PAIRS)
                pieces, waiting = [], 0
        if waiting:
            yield from pa.concat_tables(pieces).combine_chunks().to_batches(max_chunksize=PAIRS)
        self.report.seconds = time.perf_counter() - started

    def _pieces(self, rows: Mapping[str, tuple[pa.Table, Int64]], schema: pa.Schema) -> Iterator[pa.Table]:
        store: dict[str, pa.Table] = {}
        probing: dict[str, Run] = {}
        stored: dict[str, Run] = {}
        for input in INPUTS:
            table, codes = rows[input]
            table, codes = self._in_time(input, table, codes)
            self._take_sample(input, table, codes)
            to_store, to_probe = (codes & STORE) > 0, (codes & PROBE) > 0
            self.report.received[input] = len(table)
            table, (to_store, to_probe) = self._sorted(input, table, [to_store, to_probe])
            self.report.probing[input] = int(to_probe.sum())
            self.report.stored_now[input] = int(to_store.sum())
            store[input] = _where(table, to_store)
            probing[input] = Run(_where(table, to_probe), self.spec)
            stored[input] = Run(store[input], self.spec) if not to_store.all() else Run(table, self.spec)
        if self.spec.pairs:
            for i, input in enumerate(INPUTS):
                for other in INPUTS:
                    if other == input or not len(probing[input]):
                        continue
                    for segment in self.task.segments[other]:
                        yield from self._pairs(self._run(segment), probing[input], input, schema)
                    if INPUTS.index(other) < i:
                        yield from self._pairs(stored[other], probing[input], input, schema)
        yield from self._due(schema)
        self._count_keys(stored, probing)
        moving = self.task.moving
        for input in INPUTS:
            if moving is None or not moving.last:
                self._store(input, store[input])
        if moving is not None:
            self._move(moving, store)

    def _move(self, moving: Moving, store: Mapping[str, pa.Table]) -> None:
        task = self.task
        mover = Mover(moving, self.spec, self.cache, task.root, task.epoch)
        for segment in moving.cuts:
            mover.cut(segment)
        if moving.last:
            for input in INPUTS:
                mover.fresh(input, task.unit, store[input])
                self.report.stored[input] = sum(s.rows for s in task.segments[input]) + len(store[input])
        self.report.stage = mover.finish()

    def _count_keys(self, stored: Mapping[str, Run], probing: Mapping[str, Run]) -> None:
        if not self.task.keys or not self.spec.equality:
            return
        held = {i: [self._run(s).numpy(KEY) for s in self.task.segments[i]] for i in INPUTS}
        now, asking = ({i: runs[i].numpy(KEY) for i in INPUTS} for runs in (stored, probing))
        self.report.keys = heaviest_keys(held, now, asking, self.task.keys)

    def _take_sample(self, input: str, rows: pa.Table, codes: Int64) -> None:
        """Rows whose content hash falls below the rate: the same ones whenever the epoch is run."""
        if not self.task.rate or not self.spec.bands or ROW not in rows.column_names:
            return
        hashes = np.asarray(rows[ROW])
        below = np.uint64(min(self.task.rate * 2.0**64, 2.0**64 - 2048))
        at = np.flatnonzero(((codes & PRIMARY) > 0) & (hashes.view(np.uint64) < below))
        positions = rows[self.spec.bands[0].column].take(pa.array(at)).to_pylist()
        known = zip(positions, hashes[at].tolist(), strict=True)
        self.report.sample[input] = [(float(x), h) for x, h in known if x is not None]

    def _in_time(self, input: str, rows: pa.Table, codes: Int64) -> tuple[pa.Table, Int64]:
        """Count the rows, and leave out those that are late or, for a window, have no time at all."""
        primary = (codes & PRIMARY) > 0
        self.report.rows[input] = int(primary.sum())
        self.report.newest[input] = pc.max(rows[TIME]).as_py() if self.spec.time and len(rows) else None
        if not self.spec.time or not len(rows):
            self.report.late[input] = 0
            return rows, codes
        late = np.asarray(rows[TIME].is_null())
        if self.task.watermark is not None:
            late |= np.asarray(pc.fill_null(pc.less(rows[TIME], self.task.watermark), False))
        self.report.late[input] = int((late & primary).sum())
        if not late.any():
            return rows, codes
        return rows.filter(pa.array(~late)), codes[~late]

    def _sorted(self, input: str, rows: pa.Table, flags: list[Bool]) -> tuple[pa.Table, list[Bool]]:
        """Sorted, the flags along with the rows; rows that match nothing are dropped unless the result shows them."""
        marked = rows.append_column("_flags", pa.array(flags[0] * 2 + flags[1]))
        table = sort(marked, self.spec)
        run = Run(table, self.spec)
        self.report.null_keys[input] = len(run) - run.valid
        if input not in self.spec.preserved and run.valid < len(run):
            table = table.slice(0, run.valid).combine_chunks()
        packed = np.asarray(table["_flags"])
        return table.drop_columns(["_flags"]), [(packed & 2) > 0, (packed & 1) > 0]

    def _run(self, segment: Segment) -> Run:
        """The segment, opened once an epoch."""
        if segment.path not in self._runs:
            self._runs[segment.path] = Run(self.cache.get(segment), self.spec)
        return self._runs[segment.path]

    def _pairs(self, stored: Run, probing: Run, input: str, schema: pa.Schema) -> Iterator[pa.Table]:
        for s, p in probe(stored, probing, self.spec, input):
            self.report.pairs += len(s)
            left, right = ((probing, p), (stored, s)) if input == "left" else ((stored, s), (probing, p))
            columns = [
                run.column(name).take(pa.array(at))
                for side, (run, at) in zip(INPUTS, (left, right), strict=True)
                for name in self.spec.columns[side]
            ]
            yield fitted(columns, schema)

    def _due(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Preserved rows whose last possible partner has come: unmatched ones, or, for a semi join, matched ones."""
        for input in self.spec.preserved:
            held = self.task.segments[INPUTS[1 - INPUTS.index(input)]]
            for at in asking(self.task.segments[input], self.task.due, self.spec):
                run = self._run(at.segment)
                table = _where(run.rows, are_due(np.asarray(run.rows[TIME]), self.task.due))
                matched = matches(Run(table, self.spec), input, held, self.spec, self.cache)
                rows = _where(table, matched if self.spec.how == "left_semi" else ~matched)
                self.report.emitted += len(rows)
                if len(rows):
                    yield shown(rows, input, self.spec, schema)

    def _store(self, input: str, rows: pa.Table) -> None:
        """One new segment, and one of those that are to be merged."""
        merged = self.task.merges.get(input, ())
        if merged:
            tables = [self.cache.get(s) for s in merged]
            if ROW in rows.column_names:
                tables = [with_rows(t, s.path) for t, s in zip(tables, merged, strict=True)]
            tables = [t.select(rows.column_names) for t in tables]
            self._write(input, sort(pa.concat_tables(tables), self.spec, runs=True), merged=True)
            self.report.removed += merged
        if len(rows):
            self._write(input, rows)
        self.report.stored[input] = sum(s.rows for s in self.task.segments[input]) + len(rows)

    def _write(self, input: str, rows: pa.Table, merged: bool = False) -> None:
        segment = write_segment(self.task.root, input, self.task.unit, self.task.epoch, rows, merged)
        self.cache.put(segment, rows)
        self.report.added.append(segment)


def _where(rows: pa.Table, mask: Bool) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask)).combine_chunks()
