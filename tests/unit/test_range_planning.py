"""Unit: keys in order are counted and cut as the thesis says, against brute force."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.report import W_IN, W_OUT
from evenkeel.schemes import Problem, scheme_named
from evenkeel.schemes.coarsening import SampleMatrix
from evenkeel.schemes.equi_weight import buckets, input_sample_size, output_sample_size
from evenkeel.schemes.m_bucket import cover
from evenkeel.schemes.one_bucket import best_stripes
from evenkeel.schemes.ranges import RangeLayout, candidates, equal_depth
from evenkeel.schemes.slices import TOLERANCE, column_slices, row_slices
from evenkeel.spark.exchange import tree_levels
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.types import Exact, Inexact

INF = float("inf")



xs = st.lists(st.one_of(st.integers(-8, 8).map(float), st.sampled_from([INF, -INF])), max_size=14)
limits = st.one_of(
    st.tuples(st.integers(-4, 4), st.integers(0, 5)).map(lambda t: (float(t[0]), float(t[0] + t[1]))),
    st.integers(-4, 4).map(lambda n: (-INF, float(n))),
    st.integers(-4, 4).map(lambda n: (float(n), INF)),
)


def axis(x, groups=0, seed=0, fraction=1.0):
    hash_ = np.random.default_rng(seed).integers(-groups, groups, len(x)) if groups else None
    return Axis.of(hash_, np.array(x, dtype=float), Exact(float(len(x))), Exact(0.0), fraction)


def within(x, y, lo, hi):
    """Positions beyond all numbers, as of NaN, are equal to themselves."""
    return x == y if np.isinf(x) and np.isinf(y) and x == y else lo <= x - y <= hi


def matching(stats):
    out = set()
    for i in range(len(stats.left)):
        for j in range(len(stats.right)):
            same = stats.left.hash is None or stats.left.hash[i] == stats.right.hash[j]
            if same and within(stats.left.x[i], stats.right.x[j], stats.lo, stats.hi):
                out.add((i, j))
    return out


@given(left=xs, right=xs, limit=limits, groups=st.integers(0, 2), slack=st.sampled_from([0.0, 2.0**-50]))
def test_pairs_are_counted_and_drawn_from_those_that_match(left, right, limit, groups, slack):
    stats = RangeStats(axis(left, groups), axis(right, groups, 1), *limit, slack)
    expected = matching(stats)
    assert stats.pairs == Exact(float(len(expected)))
    drawn = list(zip(*(a.tolist() for a in stats.sample_pairs(50)), strict=True))
    assert set(drawn) <= expected and len(drawn) == (50 if expected else 0)


def test_pairs_are_drawn_evenly():
    stats = RangeStats(axis([0, 0, 1, 5, 9]), axis([0, 1, 1, 2, 4, 5, 5, 20]), -1.0, 1.0, 0.0)
    expected = matching(stats)
    drawn = zip(*(a.tolist() for a in stats.sample_pairs(4000 * len(expected))), strict=True)
    count = dict.fromkeys(expected, 0)
    for pair in drawn:
        count[pair] += 1
    assert all(0.9 < n / 4000 < 1.1 for n in count.values())


def test_a_sample_stands_for_all_rows():
    """A tenth of the rows of each side: the count is an estimate, and says so."""
    full = [np.sort(np.random.default_rng(i).integers(0, 500, 20_000)).astype(float) for i in (1, 2)]
    exact = RangeStats(axis(full[0]), axis(full[1]), -1.0, 1.0, 0.0)
    kept = [Axis.of(None, x[::10], Exact(float(len(x))), Exact(0.0), 0.1) for x in full]
    sampled = RangeStats(*kept, -1.0, 1.0, 0.0)
    assert isinstance(sampled.pairs, Inexact) and not sampled.exact
    assert sampled.pair_count == pytest.approx(exact.pair_count, rel=0.05)


@given(
    x=xs,
    sought=st.lists(st.one_of(st.integers(-9, 9).map(float), st.sampled_from([INF, -INF])), max_size=9),
    groups=st.integers(0, 2),
    after=st.booleans(),
)
def test_find(x, sought, groups, after):
    a = axis(x, groups)
    hashes = np.random.default_rng(3).integers(-groups - 1, groups + 1, len(sought)) if groups else None
    found = a.find(hashes, np.array(sought, dtype=float), after)
    mine = [(0 if a.hash is None else int(a.hash[i]), a.x[i]) for i in range(len(a))]
    assert mine == sorted(mine)
    for i, at in enumerate(found):
        key = (0 if hashes is None else int(hashes[i]), sought[i])
        assert at == sum(m < key or (after and m == key) for m in mine)


@pytest.mark.parametrize("bounds", [0, 1, 2, 3, 4, 5, 7, 8, 13, 64, 100])
def test_levels_are_a_search_tree(bounds):
    """Each level asks for one bound; what the answers spell is how many bounds are not above the row."""
    levels = tree_levels(bounds)
    assert len(levels) == bounds.bit_length()
    for level in levels:
        there = [i for i in level if i < bounds]
        assert level == sorted(level) and level[: len(there)] == there and there  # a level is cut off at its end
    assert sorted(i for level in levels for i in level if i < bounds) == list(range(bounds))
    for row in np.arange(-0.5, bounds + 0.5, 0.5):  # the bounds are 0, 1, 2, ...
        at = 0
        for level in levels:
            at = 2 * at + (level[at] < bounds and row >= level[at])
        assert at == sum(row >= b for b in range(bounds))


def sizes(left, right):
    none = np.empty(0, dtype=np.int64)
    sides = (SideStats(Exact(n), Exact(0.0), Exact(0.0), none, none.astype(float), True) for n in (left, right))
    return JoinStats(*sides)


@pytest.mark.parametrize(("left", "right"), [(1000, 1000), (10, 1000), (1000, 10), (1, 1), (0, 5), (300, 700)])
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 12, 13])
def test_stripes(left, right, workers):
    """The heaviest region is as light as any stripes make it, for any way of sharing workers out among stripes."""
    stripes = best_stripes(left, right, workers)
    assert stripes.sum() == workers and stripes.tolist() == sorted(stripes, reverse=True)
    assert stripes.max() - stripes.min() <= 1

    def heaviest(parts):
        return max(left * k / workers + right / k for k in parts)

    assert heaviest(stripes) == pytest.approx(min(heaviest(parts) for parts in partitions(workers, workers)))


def partitions(total, most):
    if total == 0:
        yield ()
    for k in range(1, min(total, most) + 1):
        for rest in partitions(total - k, k):
            yield (k, *rest)


@pytest.mark.parametrize(("ratio", "j1"), [(1, 8), (4, 4), (16, 2), (64, 1)])
def test_what_looking_at_keys_can_gain(ratio, j1):
    """Equation 4.3: 1-Bucket's input over the least of any scheme, 8 for equal sizes on 64 machines, 2 for 1 : 64."""
    rows, workers = 10_000, 64
    load = scheme_named("one_bucket").fit(Problem(sizes(rows, ratio * rows), "inner", workers, False)).predicted
    least = (rows + ratio * rows) / workers
    assert load.rows_in.max() / least == pytest.approx(2 * ratio * j1 / (1 + ratio))


staircases = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9)


def staircase(steps, fill):
    """The candidates of rows whose ends move right by these steps, and a weight for each row and column."""
    first = np.cumsum([a for a, _ in steps])
    first -= first[0]
    last = np.maximum.accumulate(first + [b for _, b in steps])
    # Without a gap between one row and the next every column has a candidate.
    first[1:] = np.minimum(first[1:], last[:-1] + 1)
    rng = np.random.default_rng(fill)
    rows, cols = (rng.integers(1, 9, n).astype(float) for n in (len(first), last[-1] + 1))
    return first, last, rows, cols


@given(steps=staircases, fill=st.integers(0, 9), regions=st.integers(1, 7))
def test_m_bucket_covers_every_candidate_once(steps, fill, regions):
    first, last, rows, cols = staircase(steps, fill)
    found = cover(first, last, rows, cols, regions)
    assert 1 <= len(found) <= regions
    times = np.zeros((len(rows), len(cols)), dtype=int)
    for r in found:
        times[r.top : r.bottom + 1, r.left : r.right + 1] += 1
    assert times.max() == 1
    assert all(times[i, first[i] : last[i] + 1].all() for i in range(len(rows)))


def test_m_bucket_has_regions_of_equal_input():
    stats = RangeStats(axis(np.arange(20_000.0)), axis(np.arange(20_000.0)), -2.0, 2.0, 0.0)
    load = scheme_named("m_bucket").fit(Problem(sizes(20_000, 20_000), "inner", 8, False, ranges=stats)).predicted
    assert load.rows_in.max() / load.rows_in.mean() < 1.1 and load.replication < 1.1


@given(
    left=st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=30),
    right=st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=30),
    limit=limits,
    size=st.integers(1, 8),
)
def test_a_cell_that_holds_a_pair_is_a_candidate(left, right, limit, size):
    stats = RangeStats(axis(left), axis(right), *limit, 0.0)
    cuts = [equal_depth(a, size) for a in (stats.left, stats.right)]
    first, last = candidates(stats, *cuts)
    assert np.all(np.diff(first) >= 0) and np.all(np.diff(last) >= 0) and np.all(first <= last)
    for i, j in matching(stats):
        row, col = (int(np.searchsorted(c, at, side="right")) - 1 for c, at in zip(cuts, (i, j), strict=True))
        assert first[row] <= col <= last[row]


@given(steps=staircases, fill=st.integers(0, 9), regions=st.integers(1, 6))
def test_slices_are_the_best_there_are(steps, fill, regions):
    first, last, rows, cols = staircase(steps, fill)
    cells = [(i, j) for i in range(len(rows)) for j in range(first[i], last[i] + 1)]
    at_row, at_col = (np.array([c[k] for c in cells]) for k in (0, 1))
    out = np.random.default_rng(fill + 1).integers(0, 200, len(cells)).astype(float)
    sample = SampleMatrix(rows, cols, first, last, at_row, at_col, out)
    top = np.array([min(i for i, j in cells if j == c) for c in range(len(cols))])
    bottom = np.array([max(i for i, j in cells if j == c) for c in range(len(cols))])
    for found, along, across, begin, end, at in (
        (row_slices(sample, regions, W_IN, W_OUT), rows, cols, first, last, at_row),
        (column_slices(sample, regions, W_IN, W_OUT), cols, rows, top, bottom, at_col),
    ):
        assert len(found) <= regions
        assert np.sum([inside(r, at_row, at_col) for r in found], axis=0).tolist() == [1] * len(cells)

        def weigh(a, b, along=along, across=across, begin=begin, end=end, at=at):
            read = along[a:b].sum() + across[begin[a] : end[b - 1] + 1].sum()
            return W_IN * read + W_OUT * out[(at >= a) & (at < b)].sum()

        runs = [(r.top, r.bottom + 1) if along is rows else (r.left, r.right + 1) for r in found]
        heaviest = max(weigh(a, b) for a, b in runs)
        assert heaviest <= least_slices(len(along), regions, weigh) * TOLERANCE * (1 + 1e-9)


def inside(r, at_row, at_col):
    return ((at_row >= r.top) & (at_row <= r.bottom) & (at_col >= r.left) & (at_col <= r.right)).astype(int)


def least_slices(n, regions, weigh):
    """The lightest heaviest run, over every way to cut n buckets into at most so many runs."""
    best = INF
    for k in range(min(regions, n)):
        for cuts in combinations(range(1, n), k):
            edges = (0, *cuts, n)
            best = min(best, max(weigh(a, b) for a, b in pairwise(edges)))
    return best


def test_buckets_of_the_sample_matrix():
    """Section 4.3.1: n_s = sqrt(2 n J) where m = n; more output needs fewer buckets, less output more."""
    n, workers = 1_000_000, 32
    keys = axis(np.arange(float(n)))
    assert buckets(RangeStats(keys, keys, 0.0, 0.0, 0.0), workers) == np.sqrt(2 * n * workers) == 8000
    assert buckets(RangeStats(keys, keys, -1.0, 1.0, 0.0), workers) == pytest.approx(8000 / np.sqrt(3), rel=1e-3)
    half = RangeStats(keys, axis(np.arange(float(n)) * 2), 0.0, 0.0, 0.0)
    assert half.pair_count == n / 2
    assert buckets(half, workers) == pytest.approx(8000 * np.sqrt(2), rel=1e-3)


def test_sample_sizes():
    """Section 4.7.2: s_i = 4 n_s ln(2n / gamma) / e^2; s_o is 1063 and the number of candidate cells at the least."""
    assert input_sample_size(10**6, 8000, 0.5, 0.01) == np.ceil(4 * 8000 * np.log(2 * 10**6 / 0.01) / 0.25)
    grown = input_sample_size(10**8, 8000) - input_sample_size(10**6, 8000)
    assert grown == pytest.approx(4 * 8000 * np.log(100) / 0.5**2, abs=1)  # by the logarithm of the rows alone
    assert output_sample_size(0) == output_sample_size(100) == 1063
    for cells in (600, 1063, 10_000, 200_000):
        assert output_sample_size(cells) >= max(1063, cells)


@pytest.mark.parametrize(("reach", "by_ranges"), [(50, True), (99, True), (101, False), (400, False)])
def test_many_pairs_a_row_are_left_to_one_bucket(reach, by_ranges):
    """From a hundred pairs for each row of either side on: 20,000 rows a side at 0, 1, 2 ... and a band of `reach`."""
    rows = 20_000
    stats = RangeStats(axis(range(rows)), axis(range(rows)), -float(reach), float(reach), 0.0)
    assert (stats.pairs.value > 100 * 2 * rows) is not by_ranges
    layout = scheme_named("equi_weight").fit(Problem(sizes(rows, rows), "inner", 8, False, ranges=stats))
    assert isinstance(layout, RangeLayout) is by_ranges
