"""Layouts over the join matrix with sorted axes: rectangles of key ranges are regions.

                 right keys in order
                 ┌────┬───────────────┐
      left keys  │ R0 │               │    a row of the left goes to every region that its line crosses,
      in order   ├────┴──┬────┐       │    a row of the right to every region that its column crosses;
                 │       │ R1 │       │    a line and a column meet in one cell, and a cell is in one
                 │       └────┴──┬────┤    region at the most: a pair meets exactly once
                 │               │ R2 │
                 └───────────────┴────┘
Invariant: rectangles are disjoint, and every cell that can hold a pair is in one of them. Whether a cell can is
judged from its boundary keys with rounding allowed for, never from the sample.
Rows of one key may be cut apart: among equals the order is that of a hash of the row's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenkeel import dealing, hashing
from evenkeel.report import LoadReport
from evenkeel.schemes.base import Batch, Bounds, Routed, RouteExpr
from evenkeel.schemes.tiling import Rectangle
from evenkeel.stats import Axis, RangeStats
from evenkeel.types import SIDES, Int64, Side

TIES = 2**31
"""Rows of one key are told apart by a number below this."""
LIGHT = 0.01
"""Keys with fewer rows than this part of a region's stay whole."""


@dataclass(frozen=True, eq=False)
class RangeLayout:
    workers: int
    bounds: dict[Side, Bounds]
    regions: dict[Side, tuple[tuple[int, ...], ...]]
    """For every range between bounds the regions its rows go to; none where they can match nothing."""
    predicted: LoadReport | None = None

    def route(self, side: Side, batch: Batch) -> Routed:
        slot = self.bounds[side].find(batch, tie_of(batch.row))
        lists = self.regions[side]
        sizes = np.array([len(r) for r in lists])
        copies = np.where(batch.valid, sizes[slot], 0)
        rows = np.arange(len(slot))
        alone = rows[copies == 0]
        sent = np.repeat(rows, copies)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        flat = np.array([r for regions in lists for r in regions], dtype=np.int64)
        offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
        regions = flat[starts[slot[sent]] + offset] if len(sent) else np.empty(0, dtype=np.int64)
        spread = dealing.slot(batch.row[alone], self.workers)
        return Routed(np.concatenate([sent, alone]), np.concatenate([regions, spread]))

    def route_expr(self, side: Side) -> RouteExpr:
        lone = f"array({dealing.slot_sql('{row}', self.workers)})"
        return RouteExpr("explode_outer(_places)", bounds=self.bounds[side], places=self.regions[side], lone=lone)

    def replicates(self, side: Side) -> bool:
        return any(len(r) > 1 for r in self.regions[side])


def tie_of(row: Int64) -> Int64:
    return np.mod(hashing.xxhash64([pa.array(row)]), TIES)


TIE_SQL = f"pmod(xxhash64({{row}}), {TIES}L)"


def equal_depth(axis: Axis, buckets: int) -> Int64:
    """Cuts of an axis into buckets of equally many keys: places from 0 to its length, one bucket at the least."""
    if not len(axis):
        return np.zeros(2, dtype=np.int64)
    return np.unique(np.linspace(0, len(axis), max(1, min(buckets, len(axis))) + 1).astype(np.int64))


def candidates(stats: RangeStats, row_cuts: Int64, col_cuts: Int64) -> tuple[Int64, Int64]:
    """The first and the last column bucket that may match each row bucket.

    A bucket reaches from its first key to the first key of the next one, both included; the outermost buckets
    reach to infinity. Rows may lie anywhere in between, whether they were sampled or not.
    """
    left_hash, left_x = stats.left.take(row_cuts[1:-1])
    low, high = np.concatenate([[-np.inf], left_x]), np.concatenate([left_x, [np.inf]])
    reach_low, reach_high = stats.reach(low)[0], stats.reach(high)[1]
    edges = Axis(*stats.right.take(col_cuts[1:-1]), stats.right.rows, stats.right.null_rows)
    if left_hash is None:
        return edges.find(None, reach_low, after=False), edges.find(None, reach_high, after=True)
    # With an equality the outermost buckets begin at the least hash and end at the greatest.
    from_hash = np.concatenate([[np.iinfo(np.int64).min], left_hash])
    to_hash = np.concatenate([left_hash, [np.iinfo(np.int64).max]])
    reach_low[0], reach_high[-1] = -np.inf, np.inf
    return edges.find(from_hash, reach_low, after=False), edges.find(to_hash, reach_high, after=True)


def shrink(
    rectangles: Sequence[Rectangle], row_cuts: Int64, col_cuts: Int64, first: Int64, last: Int64
) -> list[Rectangle]:
    """Rectangles over coarse cells, each cut down to the fine cells in it that can match.

    A coarse cell beside the staircase is often a candidate only for a thin strip along its edge; what lies beyond
    the strip need not be shipped.
    """
    out = []
    for r in rectangles:
        top, bottom = int(row_cuts[r.top]), int(row_cuts[r.bottom + 1]) - 1
        left, right = int(col_cuts[r.left]), int(col_cuts[r.right + 1]) - 1
        rows = np.flatnonzero((first[top : bottom + 1] <= right) & (last[top : bottom + 1] >= left)) + top
        if len(rows):
            top, bottom = int(rows[0]), int(rows[-1])
            out.append(Rectangle(top, bottom, max(left, int(first[top])), min(right, int(last[bottom]))))
    return out


def on_own_cuts(rectangles: Sequence[Rectangle], cuts: dict[Side, Int64]) -> tuple[list[Rectangle], dict[Side, Int64]]:
    """The same rectangles over no more buckets than their edges need."""
    edges = {s: {0, len(cuts[s]) - 1} | {e for r in rectangles for e in _edges(r, s)} for s in SIDES}
    kept = {s: np.array(sorted(edges[s]), dtype=np.int64) for s in SIDES}
    at = {s: {int(e): i for i, e in enumerate(kept[s])} for s in SIDES}
    moved = [
        Rectangle(
            at["left"][r.top], at["left"][r.bottom + 1] - 1, at["right"][r.left], at["right"][r.right + 1] - 1
        )
        for r in rectangles
    ]
    return moved, {s: cuts[s][kept[s]] for s in SIDES}


def _edges(rectangle: Rectangle, side: Side) -> tuple[int, int]:
    first, last = spans(rectangle, side)
    return first, last + 1


def lay_out(
    stats: RangeStats,
    cuts: dict[Side, Int64],
    rectangles: Sequence[Rectangle],
    workers: int,
    predicted: LoadReport,
) -> RangeLayout:
    """A layout from cuts of both axes and rectangles over the buckets between them, region by region."""
    bounds, regions = {}, {}
    for side in SIDES:
        lists: list[list[int]] = [[] for _ in range(len(cuts[side]) - 1)]
        for i, r in enumerate(rectangles):
            first, last = spans(r, side)
            for covered in lists[first : last + 1]:
                covered.append(i)
        kept = [0] + [i for i in range(1, len(lists)) if lists[i] != lists[i - 1]]
        regions[side] = tuple(tuple(lists[i]) for i in kept) if lists else ((),)
        bounds[side] = _bounds(stats.of(side), cuts[side][kept[1:]], workers)
    return RangeLayout(workers, bounds, regions, predicted)


def _bounds(axis: Axis, at: Int64, workers: int) -> Bounds:
    """The keys at these places; a key that is light against a region is not worth cutting apart."""
    hash_, x = axis.take(at)
    first, end = axis.find(hash_, x, after=False), axis.find(hash_, x, after=True)
    tie = (at - first) * TIES // np.maximum(end - first, 1)
    light = end - first < LIGHT * len(axis) / workers
    return Bounds(hash_, x, np.where(light, 0, tie).astype(np.int64))


def predict(
    stats: RangeStats,
    cuts: dict[Side, Int64],
    rectangles: Sequence[Rectangle],
    workers: int,
    title: str,
    pairs: tuple[Int64, Int64] | None,
) -> LoadReport:
    """What each region reads and, from a sample of pairs, what it gives; without one the output is left at zero."""
    rows_in, rows_out = np.zeros(workers), np.zeros(workers)
    depth = {s: np.diff(cuts[s]) * stats.of(s).weight for s in SIDES}
    for i, r in enumerate(rectangles):
        rows_in[i] = sum(depth[s][slice(spans(r, s)[0], spans(r, s)[1] + 1)].sum() for s in SIDES)
    for side in SIDES:
        covered = np.zeros(len(depth[side]), dtype=bool)
        for r in rectangles:
            covered[spans(r, side)[0] : spans(r, side)[1] + 1] = True
        rows_in += (depth[side][~covered].sum() + stats.of(side).null_count) / workers
    if pairs is not None and len(pairs[0]):
        row, col = (np.searchsorted(cuts[s], at, side="right") - 1 for s, at in zip(SIDES, pairs, strict=True))
        order = np.argsort(row, kind="stable")
        row, col = row[order], col[order]
        for k, r in enumerate(rectangles):
            here = col[np.searchsorted(row, r.top) : np.searchsorted(row, r.bottom, side="right")]
            rows_out[k] = ((here >= r.left) & (here <= r.right)).sum() * stats.pair_count / len(row)
    return LoadReport(rows_in, rows_out, stats.input_rows, title=title)


def spans(rectangle: Rectangle, side: Side) -> tuple[int, int]:
    """The first and the last bucket of a rectangle along one axis."""
    return (rectangle.top, rectangle.bottom) if side == "left" else (rectangle.left, rectangle.right)
