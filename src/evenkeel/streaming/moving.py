"""What one unit does for a migration in an epoch: cut segments by where the next table stores their rows.

    segment   all rows to one unit: it changes hands; else its rows are collected by input and destination
    fresh     in the last epoch of a migration the epoch's own rows go the same way
    pieces    what was collected, one sorted segment an input and destination (an archive period each, in a window)

Tables that differ in exceptions only differ in those keys: they are found in the sorted segment, the rest stays.
Invariant and rule of each row: `state/migration.py`. Rows that can match nothing are kept only where
they are to be shown as unmatched, and go where the table puts them.
A row that was stored without its content hash, because the table of then did not ask for it, gets the hash of its
segment's name and its place there, from which the segment's later readers make the same one.
Cost: two placements a row looked at, one copy a row of a segment that is cut.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenkeel.hashing import rehash, xxhash64
from evenkeel.state import Segment, SegmentCache, Tiers, write_segment
from evenkeel.state.migration import Stage, Stored, destinations
from evenkeel.state.segment import KEY, ROW, TIME
from evenkeel.streaming.joiner import Run, sort
from evenkeel.streaming.placing import placed_by
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.strategies.base import Placements, RoutingTable
from evenkeel.types import Float64, Int64


@dataclass(frozen=True, eq=False)
class Diff:
    """Two tables, and whether rows are to carry their content hash under the second."""

    before: RoutingTable
    after: RoutingTable
    rows: bool = False

    @cached_property
    def keys(self) -> dict[str, Int64] | None:
        """By input, the keys that may be stored elsewhere, sorted; None if any key may be."""
        if self.before.base is None or self.before.base != self.after.base:
            return None
        out = {}
        for i in INPUTS:
            a, b = self.before.exceptions.get(i, {}), self.after.exceptions.get(i, {})
            out[i] = np.array(sorted(k for k in {*a, *b} if a.get(k) != b.get(k)), dtype=np.int64)
        return out


@dataclass(frozen=True, eq=False)
class Moving:
    """A unit's share of a migration in one epoch."""

    diff: Diff
    cuts: tuple[Segment, ...] = ()
    last: bool = False
    """Whether the epoch's own rows are to be written where the new table stores them."""
    tiers: Tiers = field(default_factory=Tiers)
    """What may become one segment."""


@dataclass
class Collected:
    """Rows of one input for one destination."""

    rows: pa.Table
    moved: int
    bounds: tuple[int | None, int | None]


@dataclass
class Mover:
    moving: Moving
    spec: JoinSpec
    cache: SegmentCache
    root: str
    epoch: int
    _owners: dict[str, int] = field(default_factory=dict)
    _cut: set[str] = field(default_factory=set)
    _rows: dict[tuple[str, int], list[Collected]] = field(default_factory=lambda: defaultdict(list))
    _stage: Stage = field(default_factory=Stage)
    _started: float = field(default_factory=time.perf_counter)

    def cut(self, segment: Segment) -> None:
        table = self.cache.get(segment)
        to = self._destinations(segment.input, segment.unit, table, segment.path)
        whole = next(iter(to)) if len(to) == 1 and len(next(iter(to.values()))) == len(table) else None
        if whole is None:
            self._cut.add(segment.path)
            self._collect(segment.input, segment.unit, table, segment.path, to)
            return
        self._owners[segment.path] = whole
        if whole != segment.unit:
            self._count(segment.unit, whole, segment.rows, segment.size)

    def fresh(self, input: str, unit: int, rows: pa.Table) -> None:
        """The epoch's own rows, sorted; they were stored by the old table and are written for the new one."""
        if len(rows):
            name = f"{self.epoch}/{input}/{unit}"
            self._collect(input, unit, rows, name, self._destinations(input, unit, rows, name))

    def finish(self) -> Stage:
        """Write what was collected."""
        pieces = []
        for (input, unit), parts in sorted(self._rows.items()):
            for group in self._groups(parts):
                tables = [c.rows for c in group]
                columns = tables[0].column_names
                both = pa.concat_tables([t.select(columns) for t in tables])
                rows = sort(both, self.spec, runs=True) if len(tables) > 1 else both.combine_chunks()
                piece = write_segment(self.root, input, unit, self.epoch, rows, merged=len(tables) > 1)
                self.cache.put(piece, rows)
                pieces.append(piece)
                moved = sum(c.moved for c in group)
                self._count(None, unit, moved, round(piece.size * moved / piece.rows))
        seconds = time.perf_counter() - self._started
        return replace(
            self._stage, owners=self._owners, cut=frozenset(self._cut), pieces=tuple(pieces), seconds=seconds
        )

    def _count(self, source: int | None, target: int, rows: int, size: int) -> None:
        sources = frozenset() if source is None else frozenset({source})
        if rows:
            seen = Stage(rows=rows, size=size, sources=sources, targets=frozenset({target}))
            self._stage = self._stage.then(seen)

    def _collect(self, input: str, unit: int, table: pa.Table, name: str, to: dict[int, Int64]) -> None:
        if self.moving.diff.rows:
            table = with_rows(table, name)
        for target, rows in to.items():
            if not len(rows):
                continue
            part = table if len(rows) == len(table) else table.take(pa.array(rows))
            moved = len(part) if target != unit else 0
            if moved:
                self._stage = self._stage.then(Stage(sources=frozenset({unit})))
            self._rows[input, target].append(Collected(part, moved, self._bounds(part)))

    def _bounds(self, rows: pa.Table) -> tuple[int | None, int | None]:
        if not self.spec.time:
            return None, None
        found = pc.min_max(rows[TIME]).as_py()
        return found["min"], found["max"]

    def _groups(self, parts: list[Collected]) -> list[list[Collected]]:
        """Parts that may be one segment: neighbours in time."""
        out: list[list[Collected]] = []
        for part in sorted(parts, key=lambda c: c.bounds[0] or 0):
            if out and self.moving.tiers.fits([*(self._as_segment(c) for c in out[-1]), self._as_segment(part)]):
                out[-1].append(part)
            else:
                out.append([part])
        return out

    def _as_segment(self, part: Collected) -> Segment:
        return Segment("", "", 0, len(part.rows), 0, self.epoch, *part.bounds)

    def _destinations(self, input: str, unit: int, table: pa.Table, name: str) -> dict[int, Int64]:
        """By unit, the rows that go or stay there, in their order."""
        diff, rows = self.moving.diff, len(table)
        stays = unit if unit < diff.after.units else unit % diff.after.units
        if diff.keys is not None and self.spec.equality:
            at = _of_keys(Run(table, self.spec).numpy(KEY), diff.keys[input])
        else:
            at = np.arange(rows)
        if not len(at):
            return {stays: np.arange(rows)}
        hashes = self._hashes(table, name, at)
        before, after = (_stored(t.place(input, *hashes)) for t in (diff.before, diff.after))
        to = {v: at[r] for v, r in destinations(unit, len(at), before, after).items()}
        if len(at) < rows:
            rest = np.ones(rows, dtype=bool)
            rest[at] = False
            to[stays] = np.sort(np.concatenate([to.get(stays, at[:0]), np.flatnonzero(rest)]))
        return to

    def _hashes(self, table: pa.Table, name: str, at: Int64) -> tuple[Int64, Int64, Float64 | None]:
        row = np.asarray(table[ROW])[at] if ROW in table.column_names else made_up(name, at)
        needed = [c for c in (KEY, *(b.column for b in self.spec.ranges)) if c in table.column_names]
        return placed_by(table.select(needed).take(pa.array(at)), row, self.spec)


def cut(moving: Moving, spec: JoinSpec, cache: SegmentCache, root: str, epoch: int) -> Stage:
    """A share of a migration that is done after the units of an epoch, which have stored its rows."""
    mover = Mover(moving, spec, cache, root, epoch)
    for segment in moving.cuts:
        mover.cut(segment)
    return mover.finish()


def made_up(name: str, at: Int64) -> Int64:
    """Content hashes for rows that were stored without: a function of the segment's name and the row's place."""
    seed = xxhash64([pa.array([name])])[0]
    with np.errstate(over="ignore"):
        return rehash(np.asarray(at, dtype=np.int64) + seed)


def with_rows(table: pa.Table, name: str) -> pa.Table:
    if ROW in table.column_names:
        return table
    return table.append_column(ROW, pa.array(made_up(name, np.arange(len(table)))))


def _of_keys(sorted_keys: Int64, wanted: Int64) -> Int64:
    """Where the rows of some keys are."""
    lo, hi = (np.searchsorted(sorted_keys, wanted, side=side) for side in ("left", "right"))
    found = [np.arange(a, b) for a, b in zip(lo, hi, strict=True) if b > a]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _stored(placed: Placements) -> Stored:
    here: Any = placed.store
    return placed.row[here], placed.unit[here]
