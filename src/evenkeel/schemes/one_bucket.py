"""1-Bucket: the whole join matrix is cut into regions of equal area, whatever the condition.

         right rows, at random
        ┌─────┬─────┬─────┐      7 workers: a stripe of 3 regions that is 3/7 of the left rows high,
      L │  0  │  1  │  2  │      a stripe of 4 that is 4/7 high; every region is 1/7 of the area
        ├────┬┴──┬──┴┬────┤
        │ 3  │ 4 │ 5 │ 6  │      a left row is in one stripe, in all its regions;
        └────┴───┴───┴────┘      a right row is in one region of every stripe
Invariant: a stripe and a column of it cross in one region, so each pair meets exactly once.
Cost: a region reads |L| * k/p + |R| / k rows for k regions a stripe, about 2 * sqrt(|L||R| / p) at best, and checks
1/p of all pairs. No statistics but the two sizes; the output is even however skewed the keys are. A scheme that
knows which keys can match reads less: up to sqrt(p) times for inputs of one size (Squall, section 4.6.5).
Source: Okcan and Riedewald's 1-Bucket as Squall, section 4.2.2, has it; stripes of unequal height are ours, so that
no number of workers leaves one idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenkeel import dealing, hashing
from evenkeel.report import LoadReport, weight
from evenkeel.schemes.base import Batch, Layout, Problem, Routed, RouteExpr
from evenkeel.types import Float64, Int64, Side


@dataclass(frozen=True, eq=False)
class OneBucketLayout:
    workers: int
    stripes: Int64
    """How many regions each stripe has."""
    predicted: LoadReport | None = None

    @property
    def _starts(self) -> Int64:
        return np.cumsum(self.stripes) - self.stripes

    def route(self, side: Side, batch: Batch) -> Routed:
        rows = np.arange(len(batch.row))
        if side == "left":
            stripe = np.repeat(np.arange(len(self.stripes)), self.stripes)[dealing.slot(batch.row, self.workers)]
            copies = self.stripes[stripe]
            sent = np.repeat(rows, copies)
            offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
            return Routed(sent, self._starts[stripe[sent]] + offset)
        # Hashed, so that neighbours of the two inputs are not neighbours in the matrix.
        number = hashing.xxhash64([pa.array(batch.row)])
        region = self._starts[None, :] + np.mod(number[:, None], self.stripes[None, :])
        return Routed(np.repeat(rows, len(self.stripes)), region.reshape(-1))

    def route_expr(self, side: Side) -> RouteExpr:
        if side == "right":
            number = "xxhash64({row})"
            each = (f"{s} + cast(pmod({number}, {k}L) as int)" for s, k in zip(self._starts, self.stripes, strict=True))
            return RouteExpr(f"explode_outer(array({', '.join(each)}))")
        regions = [f"sequence({s}, {s + k - 1})" for s, k in zip(self._starts, self.stripes, strict=True)]
        if len(regions) == 1:
            return RouteExpr(f"explode_outer({regions[0]})")
        stripes = np.repeat(np.arange(len(regions)), self.stripes)
        stripe = f"array({', '.join(map(str, stripes))})[{dealing.slot_sql('{row}', self.workers)}]"
        return RouteExpr(f"explode_outer(array({', '.join(regions)})[{stripe}])")

    def replicates(self, side: Side) -> bool:
        return bool(self.stripes.max() > 1) if side == "left" else len(self.stripes) > 1


class OneBucket:
    name = "one_bucket"
    summary = "the join matrix in regions of equal area, for any condition"

    def planning(self, workers: int) -> float:
        return 0.0

    def fit(self, problem: Problem) -> Layout:
        left, right = (problem.stats.of(s).row_count for s in ("left", "right"))
        p = problem.workers
        stripes = best_stripes(left, right, p)
        rows_in = np.concatenate([np.full(k, left * k / p + right / k) for k in stripes])
        pairs = left * right
        out = problem.ranges.pair_count if problem.ranges is not None else pairs
        report = LoadReport(rows_in, np.full(p, out / p), left + right, title="predicted, one_bucket")
        return OneBucketLayout(p, stripes, report)


def best_stripes(left: float, right: float, workers: int) -> Int64:
    """Regions of each stripe, wide stripes first: the number of stripes whose largest region reads least."""
    found: tuple[float, Int64] | None = None
    for count in range(1, workers + 1):
        few, wider = divmod(workers, count)
        stripes = np.full(count, few)
        stripes[:wider] += 1
        heaviest = float(np.max(_rows(left, right, stripes, workers)))
        if found is None or heaviest < found[0]:
            found = heaviest, stripes
    assert found is not None
    return found[1]


def _rows(left: float, right: float, stripes: Int64, workers: int) -> Float64:
    return np.asarray(weight(left * stripes / workers + right / stripes, 0.0))
