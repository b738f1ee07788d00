"""Equi-weight histogram: regions of equal work, input and output together, over the cells that can match.

Invariant: that of `ranges`.
Cost: the heaviest region is close to the mean for any mix of input and output; rows are copied only where regions
share a line or a column. Planning is three stages, each on a smaller matrix with a more careful algorithm:

    sampling         n_s x n_s cells of equal depth, n_s = sqrt(2 n J / rho), output from an even sample of pairs
    coarsening       2J x 2J cells, the heaviest as light as possible            (coarsening.py)
    regionalization  at most J rectangles, the heaviest as light as possible     (tiling.py), then cut down to the
                     fine cells that can match

Beside it stand slices of the fine matrix (slices.py), which for thin staircases are lighter; where they are as good
as even, or where `auto` finds that they cannot save the time they take, the last two stages are left out.

rho = m / n is the exact ratio of pairs to rows: with more output fewer buckets hold every cell under half a region's
work (Lemma 4.3.1), with less output it takes more. A join whose output is a hundred times its input, or whose cells
can nearly all match, is one for `one_bucket`: there is nothing to leave out (section 4.6.5).
Source: Squall, sections 4.2.4, 4.3 and 4.7.2. Rows of one key that weigh more than a region are cut apart, which the
thesis leaves open.
"""

from __future__ import annotations

import numpy as np

from evenkeel.report import W_IN, W_OUT, LoadReport, weight
from evenkeel.schemes.base import Layout, Problem
from evenkeel.schemes.coarsening import SampleMatrix, coarse_matrix, coarsen
from evenkeel.schemes.one_bucket import OneBucket
from evenkeel.schemes.ranges import RangeLayout, candidates, equal_depth, lay_out, on_own_cuts, predict, shrink
from evenkeel.schemes.slices import column_slices, row_slices
from evenkeel.schemes.tiling import Rectangle, monotonic_bsp
from evenkeel.stats import RangeStats
from evenkeel.types import Int64, Side

LEAST_BUCKETS, MOST_BUCKETS = 4_000, 20_000
"""n_s at the least, for even slices where the lemma would do with less, and at the most, to bound planning."""
LEAST_SAMPLE = 1063
"""Pairs for an error of 5% with confidence 99% (section 4.7.2)."""
MOST_SAMPLE = 500_000
PREDICT_SAMPLE = 150_000
"""Pairs that loads are foretold from, drawn anew: within 2% for one of 64 regions."""
NEAR = 1.02
"""Slices this near to what no partitioning can beat need no tiling beside them."""
TILING_SECONDS = 0.004
"""A region, of the last two stages (docs/adr/0016)."""
HIGH_SELECTIVITY = 100.0
"""Pairs a row from which cutting by content gains nothing over `one_bucket`."""
MOST_CANDIDATES = 0.3
"""Which part of all cells may be candidates."""


class EquiWeight:
    name = "equi_weight"
    summary = "cells that can match, in regions of equal work"

    def planning(self, workers: int) -> float:
        return 0.03 + 1e-4 * workers

    def fit(self, problem: Problem) -> Layout:
        stats, p = problem.ranges, problem.workers
        assert stats is not None, "the optimizer asks only where there is a range"
        if stats.pair_count > HIGH_SELECTIVITY * stats.input_rows:
            return OneBucket().fit(problem)
        size = buckets(stats, p)
        cuts: dict[Side, Int64] = {"left": equal_depth(stats.left, size), "right": equal_depth(stats.right, size)}
        first, last = candidates(stats, cuts["left"], cuts["right"])
        cells = int(np.maximum(last - first + 1, 0).sum())
        if p > 1 and cells > MOST_CANDIDATES * len(first) * (len(cuts["right"]) - 1) and len(first) > 16:
            return OneBucket().fit(problem)
        sample = sample_matrix(stats, cuts, first, last, output_sample_size(cells))
        pairs = stats.sample_pairs(PREDICT_SAMPLE)
        sliced = [row_slices(sample, p, W_IN, W_OUT), column_slices(sample, p, W_IN, W_OUT)]
        layouts = [_lay_out(stats, way, cuts, p, pairs) for way in sliced if way]
        least = float(weight(sample.rows.sum() + sample.cols.sum(), sample.out.sum())) / p
        spent = problem.thrift * TILING_SECONDS * p
        if min(_heaviest(layout) for layout in layouts) - least > max((NEAR - 1) * least, spent):
            row_cuts, col_cuts = coarsen(sample, 2 * p, W_IN, W_OUT)
            tiled = monotonic_bsp(coarse_matrix(sample, row_cuts, col_cuts), p, W_IN, W_OUT)
            layouts.append(_lay_out(stats, shrink(tiled, row_cuts, col_cuts, first, last), cuts, p, pairs))
        return min(layouts, key=_heaviest)


def _heaviest(layout: RangeLayout) -> float:
    assert layout.predicted is not None
    return float(layout.predicted.weights.max(initial=0.0))


def _lay_out(
    stats: RangeStats, rectangles: list[Rectangle], cuts: dict[Side, Int64], workers: int, pairs: tuple[Int64, Int64]
) -> RangeLayout:
    """Regions numbered heaviest first: Spark starts tasks in order, and machines free early take the light ones."""
    rectangles, edges = on_own_cuts(rectangles, cuts)
    report = predict(stats, edges, rectangles, workers, "predicted, equi_weight", pairs)
    used = np.argsort(-report.weights[: len(rectangles)], kind="stable")
    order = np.concatenate([used, np.arange(len(used), workers)])
    report = LoadReport(report.rows_in[order], report.rows_out[order], report.input_rows, title=report.title)
    return lay_out(stats, edges, [rectangles[i] for i in used], workers, report)


def buckets(stats: RangeStats, workers: int) -> int:
    """n_s of section 4.3.1, lowered by the ratio of output to input where that is above one, raised where below."""
    n = max(stats.left.row_count, stats.right.row_count, 1.0)
    rho = stats.pair_count / n
    wanted = np.sqrt(2 * n * workers / max(rho, 0.01))
    return int(min(MOST_BUCKETS, max(LEAST_BUCKETS, np.ceil(wanted))))


def input_sample_size(rows: float, size: int, error: float = 0.5, doubt: float = 0.01) -> int:
    """s_i of section 4.7.2: buckets are within `error` of their depth, but for a chance of `doubt`."""
    return int(np.ceil(4 * size * np.log(2 * max(rows, 2.0) / doubt) / error**2))


def output_sample_size(candidate_cells: int) -> int:
    return min(MOST_SAMPLE, max(LEAST_SAMPLE, 2 * candidate_cells))


def sample_matrix(stats: RangeStats, cuts: dict[Side, Int64], first: Int64, last: Int64, size: int) -> SampleMatrix:
    left, right = stats.sample_pairs(size)
    i = np.searchsorted(cuts["left"], left, side="right") - 1
    j = np.searchsorted(cuts["right"], right, side="right") - 1
    cols = len(cuts["right"]) - 1
    cell, count = np.unique(i * cols + j, return_counts=True)
    scale = stats.pair_count / max(1, len(left))
    return SampleMatrix(
        np.diff(cuts["left"]) * stats.left.weight,
        np.diff(cuts["right"]) * stats.right.weight,
        first,
        last,
        cell // cols,
        cell % cols,
        count * scale,
    )
