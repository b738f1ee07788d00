"""M-Bucket: cells of the join matrix that can match nothing are left out; the rest is covered by rectangles.

Invariant: that of `ranges`. Cost: no region reads more than a ceiling, the lowest for which the cover below needs at
most p regions. It looks at the input alone: a region in which every pair matches weighs the same to it as one in
which hardly any does, so where output dominates the heaviest region may be many times the mean.
Source: Okcan and Riedewald's M-Bucket-I as Squall, sections 4.2.3 and 4.6.1, has it.

    cut each axis into buckets of equal depth
    for a ceiling on input, by bisection:
        from the top, take the block of rows that covers most candidate cells for each region it needs,
        where its candidate columns are cut into regions as wide as the ceiling allows
"""

from __future__ import annotations

import numpy as np

from evenkeel.schemes.base import Layout, Problem
from evenkeel.schemes.ranges import candidates, equal_depth, lay_out, predict
from evenkeel.schemes.tiling import Rectangle
from evenkeel.types import Float64, Int64, Side

BUCKETS_A_WORKER = 62.5
"""2,000 buckets for 32 workers, as in the thesis."""
STEPS = 12
SAMPLE = 50_000
"""Pairs that the output is foretold from; the cover itself does not look at them."""


class MBucket:
    name = "m_bucket"
    summary = "cells that can match, covered by regions of equal input"

    def planning(self, workers: int) -> float:
        return 0.01 + 3e-4 * workers

    def fit(self, problem: Problem) -> Layout:
        stats, p = problem.ranges, problem.workers
        assert stats is not None, "the optimizer asks only where there is a range"
        size = max(2, int(BUCKETS_A_WORKER * p))
        cuts: dict[Side, Int64] = {"left": equal_depth(stats.left, size), "right": equal_depth(stats.right, size)}
        first, last = candidates(stats, cuts["left"], cuts["right"])
        rows, cols = np.diff(cuts["left"]) * stats.left.weight, np.diff(cuts["right"]) * stats.right.weight
        rectangles = cover(first, last, rows, cols, p)
        report = predict(stats, cuts, rectangles, p, "predicted, m_bucket", stats.sample_pairs(SAMPLE))
        return lay_out(stats, cuts, rectangles, p, report)


def cover(first: Int64, last: Int64, rows: Float64, cols: Float64, regions: int) -> tuple[Rectangle, ...]:
    """At most `regions` rectangles over all candidate cells, with the largest input as small as bisection finds it."""
    low, high = float(rows.sum() + cols.sum()) / regions / 2, float(rows.sum() + cols.sum())
    best: tuple[Rectangle, ...] = (Rectangle(0, len(rows) - 1, int(first.min()), int(last.max())),)
    for _ in range(STEPS):
        ceiling = (low * high) ** 0.5 if low > 0 else high / 2
        found = _cover_under(first, last, rows, cols, regions, ceiling)
        if found is None:
            low = ceiling
        else:
            best, high = found, ceiling
    return best


def _cover_under(
    first: Int64, last: Int64, rows: Float64, cols: Float64, regions: int, ceiling: float
) -> tuple[Rectangle, ...] | None:
    row_ends, col_ends = np.concatenate([[0.0], np.cumsum(rows)]), np.concatenate([[0.0], np.cumsum(cols)])
    cells = np.concatenate([[0], np.cumsum(last - first + 1)])
    out: list[Rectangle] = []
    top = 0
    while top < len(rows):
        # Blocks of rows that leave room for at least one column below the ceiling.
        bottom = np.arange(top, max(top + 1, int(np.searchsorted(row_ends, row_ends[top] + ceiling, side="left")) - 1))
        height = row_ends[bottom + 1] - row_ends[top]
        width = col_ends[last[bottom] + 1] - col_ends[first[top]]
        needed = np.ceil(width / np.maximum(ceiling - height, 1e-9))
        score = (cells[bottom + 1] - cells[top]) / np.maximum(needed, 1)
        at = int(np.argmax(score))
        room, end = ceiling - float(height[at]), int(last[bottom[at]])
        left = int(first[top])
        while left <= end:
            right = int(np.searchsorted(col_ends, col_ends[left] + room, side="right")) - 2
            right = min(max(right, left), end)
            out.append(Rectangle(top, int(bottom[at]), left, right))
            left = right + 1
            if len(out) > regions:
                return None
        top = int(bottom[at]) + 1
    return tuple(out)
