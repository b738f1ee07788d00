"""Slices: the rows of the fine matrix in runs, each with the columns it can match; a region is a run.

Where the staircase of candidate cells is thin, cutting along one axis alone wastes next to nothing, and it can be
done on the fine matrix instead of the coarse one: the weight of the rows a .. b-1 is

    w(a, b) = F(b) - G(a),   F(b) = w_in * (R[b] + C[last[b-1] + 1]) + w_out * O[b]
                             G(a) = w_in * (R[a] + C[first[a]])     + w_out * O[a]

with prefix sums R, C, O of rows, columns and output. F rises, so the longest slice under a ceiling is one binary
search, and the lowest ceiling for p slices a bisection over those: optimal among slices, in p * log^2 n steps.
"""

from __future__ import annotations

import numpy as np

from evenkeel.schemes.coarsening import SampleMatrix
from evenkeel.schemes.tiling import Rectangle
from evenkeel.types import Float64, Int64

TOLERANCE = 1.002


def row_slices(sample: SampleMatrix, regions: int, w_in: float, w_out: float) -> list[Rectangle]:
    """At most `regions` rectangles, each of full width, with the heaviest as light as slices allow."""
    top = _slices(sample.rows, sample.cols, _sums(sample.at_row, sample.out, len(sample.rows)), sample.first,
                  sample.last, regions, w_in, w_out)  # fmt: skip
    return [Rectangle(a, b, int(sample.first[a]), int(sample.last[b])) for a, b in top]


def column_slices(sample: SampleMatrix, regions: int, w_in: float, w_out: float) -> list[Rectangle]:
    columns = np.arange(len(sample.cols))
    first = np.searchsorted(sample.last, columns, side="left")
    last = np.searchsorted(sample.first, columns, side="right") - 1
    if np.any(first > last):
        return []  # a column that nothing can match: the other ways serve
    left = _slices(sample.cols, sample.rows, _sums(sample.at_col, sample.out, len(sample.cols)), first, last, regions,
                   w_in, w_out)  # fmt: skip
    return [Rectangle(int(first[a]), int(last[b]), a, b) for a, b in left]


def _sums(at: Int64, out: Float64, size: int) -> Float64:
    return np.bincount(at, weights=out, minlength=size).astype(np.float64)


def _slices(
    rows: Float64, cols: Float64, out: Float64, first: Int64, last: Int64, regions: int, w_in: float, w_out: float
) -> list[tuple[int, int]]:
    """Runs of rows, as (first, last)."""
    r, c, o = (np.concatenate([[0.0], np.cumsum(v)]) for v in (rows, cols, out))
    ends = np.maximum.accumulate(w_in * (r[1:] + c[last + 1]) + w_out * o[1:])
    starts = w_in * (r[:-1] + c[first]) + w_out * o[:-1]

    def cut(ceiling: float) -> list[tuple[int, int]] | None:
        runs, a = [], 0
        while a < len(rows):
            b = max(a, int(np.searchsorted(ends, ceiling + starts[a], side="right")) - 1)
            runs.append((a, b))
            if len(runs) > regions:
                return None
            a = b + 1
        return runs

    high = float(ends[-1] - starts[0])
    low = max(high / regions / 2, 1e-9)
    best = [(0, len(rows) - 1)]
    while high > low * TOLERANCE:
        ceiling = (low * high) ** 0.5
        found = cut(ceiling)
        if found is None:
            low = ceiling
        else:
            best, high = found, ceiling
    return best
