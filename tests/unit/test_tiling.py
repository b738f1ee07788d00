"""Unit, against an oracle written from scratch: plain BSP over all rectangles of small monotone matrices."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.schemes import tiling
from evenkeel.schemes.tiling import TOLERANCE, JoinMatrix, Rectangle, fewest, monotonic_bsp

WEIGHTS = st.sampled_from([(1.0, 0.25), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (2.0, 0.5)])
INEQUALITY, EVERYTHING, STAIRCASE = "inequality", "everything", "staircase"


@st.composite
def matrices(draw, most=6):
    a, b = draw(st.integers(1, most)), draw(st.integers(1, most))
    column = st.integers(0, b - 1)
    kind = draw(st.sampled_from((STAIRCASE, STAIRCASE, INEQUALITY, EVERYTHING)))
    first = np.zeros(a, int) if kind == EVERYTHING else np.sort(draw(st.lists(column, min_size=a, max_size=a)))
    last = np.full(a, b - 1) if kind != STAIRCASE else np.sort(draw(st.lists(column, min_size=a, max_size=a)))
    last = np.maximum(first, last)
    empty = np.array(draw(st.lists(st.sampled_from((False, False, True)), min_size=a, max_size=a)))
    if kind == STAIRCASE:
        first, last = np.where(empty, b, first), np.where(empty, -1, last)
    rows, cols = (draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)) for n in (a, b))
    out = np.array(draw(st.lists(st.sampled_from((0, 0, 1, 2, 7, 40)), min_size=a * b, max_size=a * b)))
    matrix = JoinMatrix(np.array(rows, float), np.array(cols, float), out.reshape(a, b).astype(float), first, last)
    return JoinMatrix(matrix.rows, matrix.cols, matrix.out * candidates(matrix), first, last)


def candidates(matrix):
    col = np.arange(len(matrix.cols))
    return (matrix.first[:, None] <= col) & (col <= matrix.last[:, None])


def weight(matrix, r, w_in, w_out):
    rows, cols = slice(r.top, r.bottom + 1), slice(r.left, r.right + 1)
    return w_in * (matrix.rows[rows].sum() + matrix.cols[cols].sum()) + w_out * matrix.out[rows, cols].sum()


class PlainBsp:
    """Every rectangle, shrunk to the candidates in it, and every cut."""

    def __init__(self, matrix, w_in, w_out):
        cells, memo = candidates(matrix), {}
        self.whole = (0, len(matrix.rows) - 1, 0, len(matrix.cols) - 1)

        @cache
        def shrunk(top, bottom, left, right):
            inside = cells[top : bottom + 1, left : right + 1]
            if not inside.any():
                return None
            rows, cols = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
            return Rectangle(*(int(i) for i in (top + rows[0], top + rows[-1], left + cols[0], left + cols[-1])))

        @cache
        def weigh(r):
            return weight(matrix, r, w_in, w_out)

        def count(delta, *sides):
            r = shrunk(*sides)
            if r is None:
                return 0
            if (delta, r) not in memo:
                memo[delta, r] = min(parts(delta, r)) if weigh(r) > delta and r.top + r.left < r.bottom + r.right else 1
            return memo[delta, r]

        def parts(delta, r):
            for k in range(r.top, r.bottom):
                yield count(delta, r.top, k, r.left, r.right) + count(delta, k + 1, r.bottom, r.left, r.right)
            for k in range(r.left, r.right):
                yield count(delta, r.top, r.bottom, r.left, k) + count(delta, r.top, r.bottom, k + 1, r.right)

        self.count, self.shrunk, self.weigh = count, shrunk, weigh

    def lightest(self, regions):
        """The least delta for so many regions: the weight of some rectangle."""
        a, b = self.whole[1] + 1, self.whole[3] + 1
        sides = ((t, o, s, r) for t in range(a) for o in range(t, a) for s in range(b) for r in range(s, b))
        heaviest_cell = max(self.weigh(r) for t in range(a) for s in range(b) if (r := self.shrunk(t, t, s, s)))
        deltas = sorted({w for s in sides if (r := self.shrunk(*s)) and (w := self.weigh(r)) >= heaviest_cell})
        lo, hi = 0, len(deltas) - 1
        while lo < hi:
            middle = (lo + hi) // 2
            lo, hi = (lo, middle) if self.count(deltas[middle], *self.whole) <= regions else (middle + 1, hi)
        return deltas[lo]


def check_cover(matrix, rectangles):
    covered = np.zeros(matrix.out.shape, int)
    for r in rectangles:
        covered[r.top : r.bottom + 1, r.left : r.right + 1] += 1
    assert covered.max(initial=0) <= 1, "two regions overlap"
    assert covered[candidates(matrix)].all(), "a candidate is in no region"


def check_fewest(matrix, weights, delta):
    plain = PlainBsp(matrix, *weights)
    count, rectangles = fewest(matrix, delta, *weights)
    assert count == len(rectangles) == plain.count(delta, *plain.whole)
    check_cover(matrix, rectangles)
    for r in rectangles:
        assert plain.shrunk(r.top, r.bottom, r.left, r.right) == r
        assert weight(matrix, r, *weights) <= delta or (r.top, r.left) == (r.bottom, r.right)


@settings(max_examples=600)
@given(matrices(), WEIGHTS, st.integers(0, 200))
def test_the_fewest_regions_are_those_of_plain_bsp(matrix, weights, delta):
    check_fewest(matrix, weights, delta / 2)


def test_the_fewest_regions_of_narrow_staircases(seed):
    """Where lines cross in all the ways that let some of them be left out."""
    rng = np.random.default_rng(seed)
    for _ in range(400):
        a, b = rng.integers(3, 11, 2)
        first, width = np.sort(rng.integers(0, b, a)), rng.integers(0, rng.integers(1, 5), a)
        last = np.maximum.accumulate(np.minimum(first + width, b - 1))
        rows, cols = rng.integers(0, 4, a).astype(float), rng.integers(0, 4, b).astype(float)
        matrix = JoinMatrix(rows, cols, np.zeros((a, b)), first, last)
        out = rng.integers(0, 9, (a, b)) * candidates(matrix)
        check_fewest(JoinMatrix(rows, cols, out.astype(float), first, last), (1.0, 1.0), float(rng.integers(4, 40)))


@settings(max_examples=400)
@given(matrices(most=5), WEIGHTS, st.integers(1, 8))
def test_the_heaviest_region_is_as_light_as_plain_bsp_makes_it(matrix, weights, regions):
    rectangles = monotonic_bsp(matrix, regions, *weights)
    check_cover(matrix, rectangles)
    assert len(rectangles) <= regions
    if rectangles:
        heaviest = max(weight(matrix, r, *weights) for r in rectangles)
        assert heaviest <= TOLERANCE * PlainBsp(matrix, *weights).lightest(regions) + 1e-9


def staircase(rng, n, a_row):
    """A band join of n x n buckets with about so many candidates a row."""
    left, right = np.sort(rng.random((2, n)))
    reach = (a_row - 1) / 2 / n
    first, last = np.searchsorted(right, left - reach), np.searchsorted(right, left + reach)
    matrix = JoinMatrix(rng.random(n), rng.random(n), rng.exponential(3, (n, n)), first, np.minimum(last, n - 1))
    return JoinMatrix(matrix.rows, matrix.cols, matrix.out * candidates(matrix), matrix.first, matrix.last)


def inequality(rng, n):
    out = np.triu(rng.random((n, n)))
    return JoinMatrix(rng.random(n), rng.random(n), out, np.arange(n), np.full(n, n - 1))


@pytest.mark.parametrize(("n", "a_row", "regions"), [(64, 1.5, 32), (64, 4, 32), (128, 2.5, 64), (64, 4, 500)])
def test_bands_of_real_size(seed, n, a_row, regions):
    matrix = staircase(np.random.default_rng(seed), n, a_row)
    rectangles = monotonic_bsp(matrix, regions, 1.0, 0.2)
    check_cover(matrix, rectangles)
    assert len(rectangles) <= regions
    total = matrix.rows.sum() + matrix.cols.sum() + 0.2 * matrix.out.sum()
    heaviest_cell = max(
        weight(matrix, Rectangle(i, i, j, j), 1.0, 0.2) for i, j in np.argwhere(candidates(matrix)).tolist()
    )
    heaviest = max(weight(matrix, r, 1.0, 0.2) for r in rectangles)
    assert heaviest <= max(2 * total / regions, TOLERANCE * heaviest_cell)


@settings(max_examples=150)
@given(matrices(), st.integers(1, 6))
def test_too_many_candidates_are_merged_and_still_covered(matrix, regions):
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(tiling, "MOST_CELLS", 12)
        limits.setattr(tiling, "MOST_CROSSINGS", 60)
        rectangles = monotonic_bsp(matrix, regions, 1.0, 0.5)
    check_cover(matrix, rectangles)
    assert len(rectangles) <= regions


def test_an_inequality_is_kept_within_the_limits(seed):
    matrix = inequality(np.random.default_rng(seed), 128)
    row_cuts, col_cuts = tiling._cuts_within_limits(matrix, 1.0, 1.0)
    first, last = tiling.merged_candidates(matrix.first, matrix.last, row_cuts, col_cuts)
    assert 24 <= len(row_cuts) - 1 <= 64 and tiling._tractable(first, last, len(col_cuts) - 1)
    rectangles = monotonic_bsp(matrix, 4, 1.0, 1.0)
    check_cover(matrix, rectangles)
    total = matrix.rows.sum() + matrix.cols.sum() + matrix.out.sum()
    assert len(rectangles) <= 4 and max(weight(matrix, r, 1.0, 1.0) for r in rectangles) < 1.2 * total / 4


def test_one_region_is_the_candidates_and_no_more():
    matrix = JoinMatrix(np.ones(4), np.ones(5), np.zeros((4, 5)), np.array([9, 1, 0, 2]), np.array([0, 1, -1, 3]))
    assert monotonic_bsp(matrix, 1, 1.0, 1.0) == (Rectangle(1, 3, 1, 3),)
    assert monotonic_bsp(matrix, 2, 1.0, 1.0) == (Rectangle(1, 1, 1, 1), Rectangle(3, 3, 2, 3))


def test_one_region_over_an_empty_row_that_alone_weighs():
    matrix = JoinMatrix(
        np.array([0.0, 5.0, 0.0]), np.zeros(2), np.zeros((3, 2)), np.array([0, 2, 1]), np.array([0, -1, 1])
    )
    assert monotonic_bsp(matrix, 1, 1.0, 1.0) == (Rectangle(0, 2, 0, 1),)
    assert monotonic_bsp(matrix, 2, 1.0, 1.0) == (Rectangle(0, 0, 0, 0), Rectangle(2, 2, 1, 1))


def test_nothing_to_cover():
    matrix = JoinMatrix(np.ones(2), np.ones(3), np.zeros((2, 3)), np.array([1, 3]), np.array([0, -1]))
    assert monotonic_bsp(matrix, 3, 1.0, 1.0) == ()
    assert fewest(matrix, 0.0, 1.0, 1.0) == (0, ())
