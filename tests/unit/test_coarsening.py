"""Unit, against an oracle written from scratch: the best grid of small matrices, found by trying all of them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.schemes.coarsening import PRECISION, SampleMatrix, coarse_matrix, coarsen
from evenkeel.schemes.tiling import monotonic_bsp

WEIGHTS = st.sampled_from([(1.0, 0.25), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (2.0, 0.5)])


@st.composite
def samples(draw, most=7):
    a, b = draw(st.integers(1, most)), draw(st.integers(1, most))
    column = st.integers(0, b - 1)
    dense = draw(st.booleans())
    first = np.sort(draw(st.lists(st.just(0) if dense else column, min_size=a, max_size=a)))
    last = np.maximum(first, np.sort(draw(st.lists(st.just(b - 1) if dense else column, min_size=a, max_size=a))))
    empty = np.array(draw(st.lists(st.sampled_from((False, False, True)), min_size=a, max_size=a)))
    first, last = np.where(empty, 1, first), np.where(empty, 0, last)
    rows, cols = (draw(st.lists(st.sampled_from((0, 1, 2, 5, 30)), min_size=n, max_size=n)) for n in (a, b))
    out = np.array(draw(st.lists(st.sampled_from((0, 0, 0, 1, 2, 7, 40)), min_size=a * b, max_size=a * b)))
    at_row, at_col = np.nonzero(out.reshape(a, b) * inside(first, last, b))
    order = np.array(draw(st.permutations(range(len(at_row)))), dtype=int)
    at_row, at_col = at_row[order], at_col[order]
    found = out.reshape(a, b)[at_row, at_col].astype(float)
    return SampleMatrix(np.array(rows, float), np.array(cols, float), first, last, at_row, at_col, found)


def inside(first, last, cols):
    return (first[:, None] <= np.arange(cols)) & (np.arange(cols) <= last[:, None])


def heaviest_cell(sample, row_cuts, col_cuts, w_in, w_out):
    """Of the cells that hold a fine candidate; summed cell by cell."""
    candidates = inside(sample.first, sample.last, len(sample.cols))
    out = np.zeros(candidates.shape)
    np.add.at(out, (sample.at_row, sample.at_col), sample.out)
    heaviest = 0.0
    for top, bottom in pairwise(row_cuts):
        for left, right in pairwise(col_cuts):
            if candidates[top:bottom, left:right].any():
                read = sample.rows[top:bottom].sum() + sample.cols[left:right].sum()
                heaviest = max(heaviest, w_in * read + w_out * out[top:bottom, left:right].sum())
    return heaviest


def all_cuts(n, size):
    """With as many cuts as there may be: one more never makes a cell heavier."""
    return [(0, *inner, n) for inner in combinations(range(1, n), min(size, n) - 1)]


def check_cuts(cuts, n, size):
    assert cuts[0] == 0 and cuts[-1] == n and (np.diff(cuts) > 0).all() and len(cuts) <= size + 1


@settings(max_examples=600)
@given(samples(), WEIGHTS, st.integers(1, 4))
def test_the_heaviest_cell_is_at_most_twice_that_of_the_best_grid(sample, weights, size):
    row_cuts, col_cuts = coarsen(sample, size, *weights)
    check_cuts(row_cuts, len(sample.rows), size)
    check_cuts(col_cuts, len(sample.cols), size)
    best = min(
        heaviest_cell(sample, r, c, *weights)
        for r in all_cuts(len(sample.rows), size)
        for c in all_cuts(len(sample.cols), size)
    )
    assert heaviest_cell(sample, row_cuts, col_cuts, *weights) <= 2 * PRECISION**2 * best + 1e-6


@given(samples(), st.integers(1, 5))
def test_a_coarse_matrix_keeps_the_totals_and_the_candidates(sample, size):
    row_cuts, col_cuts = coarsen(sample, size, 1.0, 0.5)
    coarse = coarse_matrix(sample, row_cuts, col_cuts)
    assert coarse.rows.sum() == sample.rows.sum() and coarse.cols.sum() == sample.cols.sum()
    assert coarse.out.shape == (len(coarse.rows), len(coarse.cols)) and coarse.out.sum() == sample.out.sum()
    fine = inside(sample.first, sample.last, len(sample.cols))
    merged = inside(coarse.first, coarse.last, len(coarse.cols))
    some = np.logical_or.reduceat(np.logical_or.reduceat(fine, row_cuts[:-1], axis=0), col_cuts[:-1], axis=1)
    assert merged[some].all() and not (merged & ~some)[:, some.any(axis=0)].any()
    filled = coarse.first <= coarse.last
    assert (np.diff(coarse.first[filled]) >= 0).all() and (np.diff(coarse.last[filled]) >= 0).all()


def band(rng, n, a_row, entries, skew):
    """A band join of n x n fine buckets, its output sampled with replacement."""
    left, right = np.sort(rng.random((2, n)))
    reach = (a_row - 1) / 2 / n
    first = np.minimum(np.searchsorted(right, left - reach), n - 1)
    last = np.minimum(np.searchsorted(right, left + reach), n - 1)
    width = last - first + 1
    at_row = np.repeat(np.arange(n), width)
    at_col = np.arange(len(at_row)) - np.repeat(np.cumsum(width) - width - first, width)
    share = rng.lognormal(0, skew, len(at_row))
    seen = rng.multinomial(entries, share / share.sum())
    some = seen > 0
    return SampleMatrix(np.full(n, 9.0), np.full(n, 9.0), first, last, at_row[some], at_col[some], 1.0 * seen[some])


@pytest.mark.parametrize("skew", [0.5, 3.0])
def test_bands_of_real_size(seed, skew):
    sample, size = band(np.random.default_rng(seed), 4000, 3.6, 30_000, skew), 64
    row_cuts, col_cuts = coarsen(sample, size, 1.0, 1.0)
    check_cuts(row_cuts, 4000, size)
    check_cuts(col_cuts, 4000, size)
    total = 18.0 * 4000 + sample.out.sum()
    assert heaviest_cell(sample, row_cuts, col_cuts, 1.0, 1.0) <= 1.1 * max(total / size, 18.0 + sample.out.max())
    regions = monotonic_bsp(coarse_matrix(sample, row_cuts, col_cuts), size // 2, 1.0, 1.0)
    assert len(regions) <= size // 2


def test_cuts_isolate_a_heavy_cell():
    hot = SampleMatrix(
        np.ones(9), np.ones(9), np.arange(9), np.arange(9), np.array([4, 7]), np.array([4, 7]), np.array([100.0, 1.0])
    )
    row_cuts, col_cuts = coarsen(hot, 3, 1.0, 1.0)
    assert row_cuts.tolist() == [0, 4, 5, 9] and col_cuts.tolist() == [0, 4, 5, 9]


def test_nothing_to_cut():
    none = np.empty(0, dtype=np.int64)
    empty = SampleMatrix(np.ones(3), np.ones(2), np.ones(3, int), np.zeros(3, int), none, none, np.empty(0))
    row_cuts, col_cuts = coarsen(empty, 2, 1.0, 1.0)
    check_cuts(row_cuts, 3, 2)
    check_cuts(col_cuts, 2, 2)
    assert monotonic_bsp(coarse_matrix(empty, row_cuts, col_cuts), 4, 1.0, 1.0) == ()
