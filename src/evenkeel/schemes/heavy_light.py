"""Heavy-light: hot keys get grids, the next keys are packed, only the long tail is hashed.

Invariant: the cells of a key are different regions; a left row goes to one row of its key's grid, a right row
to one column, and a row and a column cross in one cell: each pair meets exactly once.
Cost: a hot key ships R*b + S*a rows instead of R + S; every other row is shipped once. The heaviest region
is within a few percent of the mean however skewed the keys are; hashing leaves it at the heaviest key.
Source: the static HyperCube of Streaming HyperCube (EDBT 2019), section 2.2, for the grids; Squall, section
6.1 (skew due to hash imperfections), for placing keys instead of hashing them.

    table = the heaviest keys: all above N/p rows on a side, and as many more as it takes
            for hashing the rest to be harmless
    for ceiling in 1.02, 1.04, .. of the mean load:
        every region starts with its part of the hashed tail
        for key in table, heaviest first:
            take the grid that ships least and fits under the ceiling (mostly 1 x 1)
        stop when everything fitted
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenkeel import dealing
from evenkeel.report import LoadReport, weight
from evenkeel.schemes.base import (
    TABLE_SCHEMA,
    Batch,
    Layout,
    Problem,
    Routed,
    RouteExpr,
    spread,
    spread_sql,
)
from evenkeel.schemes.grids import Grid, Shapes
from evenkeel.schemes.output import output_rows
from evenkeel.types import SIDES, Float64, Int64, Side, preserved

MOST_KEYS = 8192
"""Keys in a routing table at the most: a broadcast of some hundred kilobytes."""
TAIL_NOISE = 0.01
"""How uneven hashing the tail may leave a region, as a part of the mean (one standard deviation)."""
RUN_NOISE = 0.01
"""How uneven dealing rows in runs may leave a region, as a part of the mean (one standard deviation)."""
NEXT_TO_NOTHING = 0.02
"""How many rows more a key may ship for finer cells, as a part of a region's rows."""
CEILINGS = (1.02, 1.04, 1.06, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
"""How far above the mean the heaviest region may be, tried from even to uneven."""


@dataclass(frozen=True, eq=False)
class HeavyLightLayout:
    workers: int
    keys: Int64
    """Hashes of the keys in the table, ascending."""
    grids: tuple[Grid, ...]
    places: tuple[Int64, ...]
    """For each key the regions of its cells, row by row."""
    predicted: LoadReport | None = None
    runs: tuple[int, int] = (0, 0)
    """The logarithm of how many neighbouring rows of a key stay together, on the left and on the right."""

    def _targets(self, i: int, side: Side) -> list[Int64]:
        cells = self.places[i].reshape(self.grids[i].a, self.grids[i].b)
        return list(cells if side == "left" else cells.T)

    def route(self, side: Side, batch: Batch) -> Routed:
        rows = np.arange(len(batch.key))
        if not len(self.keys):
            return Routed(rows, spread(batch, self.workers))
        at = np.minimum(np.searchsorted(self.keys, batch.key), len(self.keys) - 1)
        known = batch.valid & (self.keys[at] == batch.key)
        out_row, out_region = [rows[~known]], [spread(batch, self.workers)[~known]]
        for i in np.unique(at[known]):
            mine = rows[known & (at == i)]
            targets = self._targets(int(i), side)
            slot = dealing.slot(batch.row[mine], len(targets))
            for s, regions in enumerate(targets):
                chosen = mine[slot == s]
                out_row.append(np.repeat(chosen, len(regions)))
                out_region.append(np.tile(regions, len(chosen)))
        return Routed(np.concatenate(out_row), np.concatenate(out_region))

    def route_expr(self, side: Side) -> RouteExpr:
        if not len(self.keys):
            return RouteExpr(spread_sql(self.workers))
        slots = np.array([g.a if side == "left" else g.b for g in self.grids])
        copies = np.array([g.b if side == "left" else g.a for g in self.grids])
        # Entry c of a key lists, slot by slot, where copy c of a row goes: column c of the cells, row by row.
        in_order = self.places if side == "right" else [
            at if g.b == 1 else at.reshape(g.a, g.b).T.ravel() for at, g in zip(self.places, self.grids, strict=True)
        ]  # fmt: skip
        listed = np.concatenate(in_order)
        ends = np.concatenate([[0], np.cumsum(np.repeat(slots, copies))])
        regions = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(listed, pa.int32()))
        columns = (np.repeat(self.keys, copies), np.repeat(slots, copies), regions, np.repeat(copies, copies))
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, TABLE_SCHEMA, strict=True)], TABLE_SCHEMA)
        return RouteExpr(f"coalesce({{hit}}, {spread_sql(self.workers)})", table, run=self.runs[SIDES.index(side)])

    def replicates(self, side: Side) -> bool:
        return any((g.b if side == "left" else g.a) > 1 for g in self.grids)


class HeavyLight:
    name = "heavy_light"
    summary = "hot keys in grids, the next keys packed, the tail hashed"

    def planning(self, workers: int) -> float:
        return 0.0

    def fit(self, problem: Problem) -> Layout:
        loads = _Loads.of(problem)
        best: HeavyLightLayout | None = None
        for ceiling in CEILINGS:
            layout, fitted = _pack(problem, loads, ceiling * loads.mean)
            if best is None or _heaviest(layout) < _heaviest(best):
                best = layout
            if fitted:
                break
        assert best is not None
        return best


def _heaviest(layout: HeavyLightLayout) -> float:
    return float(layout.predicted.weights.max()) if layout.predicted is not None else 0.0


@dataclass(frozen=True, eq=False)
class _Loads:
    """The keys of the table with their rows, and what every region gets of the rest."""

    keys: Int64
    left: Float64
    right: Float64
    out: Float64
    rest_in: float
    rest_out: float
    mean: float

    @classmethod
    def of(cls, problem: Problem) -> _Loads:
        stats, p = problem.stats, problem.workers
        keys, left, right = stats.known_keys()
        out = output_rows(problem.how, left, right)
        tail_left, tail_right, tail_out = stats.tail(left, right)
        nulls = stats.left.null_count + stats.right.null_count
        weights = np.asarray(weight(left + right, out), dtype=np.float64)
        mean = (float(weights.sum()) + weight(tail_left + tail_right + nulls, tail_out)) / p
        listed = _worth_listing(weights, np.maximum(left, right), mean, stats.input_rows, p)
        hashed = np.setdiff1d(np.arange(len(keys)), listed)
        return cls(
            keys[listed],
            left[listed],
            right[listed],
            out[listed],
            (tail_left + tail_right + nulls + float((left + right)[hashed].sum())) / p,
            (tail_out + float(out[hashed].sum())) / p,
            mean,
        )


def _worth_listing(weights: Float64, rows_a_side: Float64, mean: float, rows: float, workers: int) -> Int64:
    """The keys to place by table, by the paper's rule and by the harm that hashing them could do.

    Hashing keys of weights w leaves a region's load with variance sum(w^2) / p.
    """
    if workers == 1:
        return np.empty(0, dtype=np.int64)
    order = np.argsort(-weights, kind="stable")
    rest = np.cumsum((weights[order] ** 2)[::-1])[::-1]
    harmful = int(np.searchsorted(-rest, -workers * (TAIL_NOISE * mean) ** 2))
    heavy = np.flatnonzero(rows_a_side > rows / workers)
    return np.union1d(order[: min(MOST_KEYS, harmful)], heavy).astype(np.int64)


def _pack(problem: Problem, loads: _Loads, ceiling: float) -> tuple[HeavyLightLayout, bool]:
    """Grids and places for the keys of the table; whether all of it stayed under the ceiling."""
    p = problem.workers
    grid_of = _GridChoice(problem)
    start = float(weight(loads.rest_in, loads.rest_out))
    heap = [(start, r) for r in range(p)]
    grids: list[Grid] = [Grid(1, 1)] * len(loads.keys)
    places: list[Int64] = [np.empty(0, dtype=np.int64)] * len(loads.keys)
    rows_in, rows_out = np.full(p, loads.rest_in), np.full(p, loads.rest_out)
    fitted = True
    whole = np.asarray(weight(loads.left + loads.right, loads.out))
    for i in np.argsort(-whole, kind="stable"):
        left, right, out = float(loads.left[i]), float(loads.right[i]), float(loads.out[i])
        if heap[0][0] + whole[i] > ceiling and p > 1:
            grids[i] = grid_of(left, right, out, np.sort(np.fromiter((at for at, _ in heap), np.float64, p)), ceiling)
        grid = grids[i]
        cell_in, cell_out = grid.cell_rows(left, right), out / grid.cells
        taken = [heapq.heappop(heap) for _ in range(grid.cells)]
        places[i] = np.array([r for _, r in taken], dtype=np.int64)
        rows_in[places[i]] += cell_in
        rows_out[places[i]] += cell_out
        for at, r in taken:
            heapq.heappush(heap, (at + weight(cell_in, cell_out), r))
        fitted = fitted and taken[-1][0] + weight(cell_in, cell_out) <= ceiling * (1 + 1e-9)
    report = LoadReport(rows_in, rows_out, problem.stats.input_rows, title="predicted, heavy_light")
    return HeavyLightLayout(p, loads.keys, tuple(grids), tuple(places), report, _runs(loads, grids)), fitted


def _runs(loads: _Loads, grids: list[Grid]) -> tuple[int, int]:
    """Runs that may make a region heavier or lighter by `RUN_NOISE` of the mean, the keys being cut independently."""
    a, b = (np.array([g.a for g in grids]), np.array([g.b for g in grids]))
    harm = [
        float(np.sqrt(np.sum(np.where(cut > 1, weight(1.0, partners / theirs), 0.0) ** 2)))
        for cut, partners, theirs in ((a, loads.right, b), (b, loads.left, a))
    ]
    left, right = (dealing.longest_run(RUN_NOISE * loads.mean / h) if h else 0 for h in harm)
    return left, right


class _GridChoice:
    """The grid of a key, within what the join type makes cheap.

    Copies of a row that must be kept when unmatched need reconciling, so such a side is left uncopied where that
    ships at most twice as much: copies of a left row are the b of its grid, of a right row the a.
    """

    def __init__(self, problem: Problem) -> None:
        p, kept = problem.workers, preserved(problem.how)
        spare = NEXT_TO_NOTHING * problem.stats.input_rows / p
        self.free = Shapes.within(p, p, p, spare)
        self.uncopied = self.free
        if len(kept) == 1:
            self.uncopied = Shapes.within(p, p if "left" in kept else 1, p if "right" in kept else 1, spare)

    def __call__(self, left: float, right: float, out: float, loads: Float64, ceiling: float) -> Grid:
        free, least = self.free.best(left, right, out, loads, ceiling)
        if self.uncopied is self.free:
            return free
        uncopied, shipped = self.uncopied.best(left, right, out, loads, ceiling)
        top = loads[uncopied.cells - 1] + weight(uncopied.cell_rows(left, right), out / uncopied.cells)
        return uncopied if top <= ceiling and shipped <= 2 * least else free
