"""Property, against the definition: any matching pair shares exactly one region, for every scheme there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel import dealing
from evenkeel.schemes import SCHEMES, Batch, Problem, scheme_named
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.types import SIDES, Exact

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def side_stats(keys, fraction=1.0):
    values, counts = np.unique(keys, return_counts=True)
    return SideStats.from_sample(len(keys), 0, float(len(values)), values, counts, fraction)


def stats_of(left, right):
    return JoinStats(side_stats(left), side_stats(right))


def batch(keys, seed, x=None):
    rows = np.random.default_rng(seed).integers(-(2**63), 2**63, len(keys), dtype=np.int64)
    return Batch(keys, np.ones(len(keys), dtype=bool), rows, np.zeros(len(keys)) if x is None else x)


def ranges_of(hashes, xs, lo, hi, fraction=1.0):
    axes = []
    for h, x in zip(hashes, xs, strict=True):
        seen = np.random.default_rng(len(x)).random(len(x)) < fraction
        rows = Exact(float(len(x)))
        axes.append(Axis.of(None if h is None else h[seen], x[seen], rows, Exact(0.0), fraction))
    return RangeStats(axes[0], axes[1], lo, hi, 2.0**-50)


def regions_of_rows(routed, n):
    out = [set() for _ in range(n)]
    for row, region in zip(routed.row, routed.region, strict=True):
        assert int(region) not in out[row], "a row was sent to one region twice"
        out[row].add(int(region))
    return out


keys = st.lists(st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), max_size=60).map(
    lambda v: np.array(v, dtype=np.int64)
)


@pytest.mark.parametrize("scheme", [s.name for s in SCHEMES])
@given(left=keys, right=keys, workers=st.integers(1, 40), how=st.sampled_from(HOWS), seed=st.integers(0, 9))
def test_each_pair_meets_in_exactly_one_region(scheme, left, right, workers, how, seed):
    ranges = ranges_of((left, right), (np.zeros(len(left)), np.zeros(len(right))), 0.0, 0.0)
    layout = scheme_named(scheme).fit(Problem(stats_of(left, right), how, workers, ranges=ranges))
    rows = {s: batch(k, seed + i) for i, (s, k) in enumerate(zip(SIDES, (left, right), strict=True))}
    where = {s: regions_of_rows(layout.route(s, rows[s]), len(rows[s].key)) for s in SIDES}
    for s in SIDES:
        assert all(r and all(0 <= x < workers for x in r) for r in where[s])
        if not layout.replicates(s):
            assert all(len(r) == 1 for r in where[s])
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if a == b:
                assert len(where["left"][i] & where["right"][j]) == 1


@given(
    hot=st.integers(2, 5000),
    cold=st.integers(0, 300),
    workers=st.integers(2, 64),
    both=st.booleans(),
)
def test_one_hot_key_is_spread_evenly(hot, cold, workers, both):
    tail = np.arange(1, cold + 1)
    left = np.concatenate([np.zeros(hot, dtype=np.int64), tail])
    right = np.concatenate([np.zeros(hot if both else 1, dtype=np.int64), tail])
    problem = Problem(stats_of(left, right), "inner", workers)
    balanced = scheme_named("heavy_light").fit(problem).predicted
    hashed = scheme_named("hash").fit(problem).predicted
    assert balanced.weights.max() <= hashed.weights.max() * (1 + 1e-9)
    assert balanced.rows_out.sum() == pytest.approx(hashed.rows_out.sum())


def test_a_million_rows_of_one_key_use_every_worker():
    one = SideStats.from_sample(10**6, 0, 1.0, np.array([7]), np.array([10**6]), 1.0)
    for workers in (2, 3, 7, 64, 97, 1000):
        load = scheme_named("heavy_light").fit(Problem(JoinStats(one, one), "inner", workers)).predicted
        assert load.skew_degree < 1.25, workers


def test_null_keys_are_spread():
    layout = scheme_named("heavy_light").fit(Problem(stats_of(np.array([1]), np.array([1])), "full", 8))
    n = 8000
    nulls = Batch(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool), dealing.number(np.arange(n)))
    counts = np.bincount(layout.route("left", nulls).region, minlength=8)
    assert counts.max() < 1.1 * n / 8


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8, 1.0, 1.2, 1.5])
@pytest.mark.parametrize("both", [False, True])
def test_zipf_is_balanced_from_a_sample(exponent, both, seed):
    """On real shapes: planned from a 40% sample, measured on all rows."""
    from evenkeel.testing import zipf_keys

    n, d, p = 300_000, 30_000, 64
    left = zipf_keys(n, d, exponent, seed)
    right = zipf_keys(n, d, exponent if both else 0.0, seed + 1)
    mix = np.random.default_rng(seed).integers(-(2**62), 2**62, d)  # hashes, as Spark would give
    sampled = []
    for i, k in enumerate((left, right)):
        kept = k[np.random.default_rng(seed + 50 + i).random(n) < 0.4]
        values, counts = np.unique(kept, return_counts=True)
        top = np.argsort(-counts, kind="stable")[:4096]
        sampled.append(SideStats.from_sample(len(kept), 0, float(len(values)), mix[values[top]], counts[top], 0.4))
    layout = scheme_named("heavy_light").fit(Problem(JoinStats(*sampled), "inner", p))
    rows_in = np.zeros(p)
    per_cell = []
    for s, k in zip(SIDES, (left, right), strict=True):
        routed = layout.route(s, batch(mix[k], seed + 100 + len(per_cell)))
        rows_in += np.bincount(routed.region, minlength=p)
        cells, counts = np.unique(routed.region * d + k[routed.row], return_counts=True)
        per_cell.append(dict(zip(cells.tolist(), counts.tolist(), strict=True)))
    rows_out = np.zeros(p)
    for cell, count in per_cell[0].items():
        rows_out[cell // d] += count * per_cell[1].get(cell, 0)
    load = rows_in + 0.1 * rows_out
    assert load.max() / load.mean() < 1.2
    expected = (np.bincount(left, minlength=d).astype(float) * np.bincount(right, minlength=d)).sum()
    assert rows_out.sum() == expected


extremes = [0, 1, -1, 5, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 6, 1_700_000_000_000_000]
positions = st.lists(
    st.one_of(st.integers(-12, 12), st.integers(-(10**6), 10**6), st.sampled_from(extremes)), min_size=0, max_size=70
)
bounds = st.one_of(
    st.tuples(st.integers(-9, 9), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1])),
    st.integers(-5, 5).map(lambda n: (n, None)),
    st.integers(-5, 5).map(lambda n: (None, n)),
)


@pytest.mark.parametrize("scheme", ["one_bucket", "m_bucket", "equi_weight"])
@given(
    left=positions,
    right=positions,
    band=bounds,
    groups=st.integers(0, 4),
    workers=st.integers(1, 24),
    fraction=st.sampled_from([1.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_each_pair_in_a_range_meets_in_exactly_one_region(scheme, left, right, band, groups, workers, fraction, seed):
    """Integers up to the last bit of 64, planned from all keys or from a few of them, with and without equality."""
    rng = np.random.default_rng(seed)
    lo, hi = (-np.inf if band[0] is None else float(band[0])), (np.inf if band[1] is None else float(band[1]))
    xs = [np.array(v, dtype=float) for v in (left, right)]
    hashes = [rng.integers(0, groups, len(v)) * 2**60 if groups else None for v in (left, right)]
    ranges = ranges_of(hashes, xs, lo, hi, fraction)
    keys = [np.zeros(len(v), dtype=np.int64) if h is None else h for v, h in zip((left, right), hashes, strict=True)]
    layout = scheme_named(scheme).fit(Problem(stats_of(*keys), "full", workers, bool(groups), ranges=ranges))
    where = {}
    for i, s in enumerate(SIDES):
        routed = layout.route(s, batch(keys[i], seed + i, xs[i]))
        where[s] = regions_of_rows(routed, len(xs[i]))
        assert all(r and all(0 <= x < workers for x in r) for r in where[s])
        if not layout.replicates(s):
            assert all(len(r) == 1 for r in where[s])
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            inside = (band[0] is None or a - b >= band[0]) and (band[1] is None or a - b <= band[1])
            if inside and keys[0][i] == keys[1][j]:
                assert len(where["left"][i] & where["right"][j]) == 1, (a, b)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 12, 32, 97])
@pytest.mark.parametrize("right", [1, 300, 3000, 300_000])
def test_one_bucket_leaves_no_worker_idle(workers, right):
    """Regions of equal area; what one reads is close to the least that any rectangle of that area could read."""
    left = 3000
    none = np.empty(0, dtype=np.int64)
    sides = [SideStats(Exact(n), Exact(0.0), Exact(0.0), none, none.astype(float), True) for n in (left, right)]
    layout = scheme_named("one_bucket").fit(Problem(JoinStats(*sides), "inner", workers))
    assert layout.stripes.sum() == workers
    least = 2 * np.sqrt(left * right / workers) if max(left, right) / min(left, right) < workers else min(left, right)
    assert layout.predicted.rows_in.max() <= 1.3 * least + max(left, right) / workers + 1
    assert layout.predicted.rows_out == pytest.approx(np.full(workers, left * right / workers))


def test_equi_weight_predicts_what_is_there(seed):
    """On real shapes: dense and sparse keys, one very hot key; sampled weights stay within the stated error."""
    rng = np.random.default_rng(seed)
    xs = []
    for _ in SIDES:
        dense, sparse = rng.integers(0, 3000, 20_000), rng.integers(10**5, 10**6, 80_000)
        xs.append(np.concatenate([dense, sparse, np.full(2_000, 77)]).astype(float))
    workers = 16
    ranges = ranges_of((None, None), xs, -2.0, 2.0)
    none = np.empty(0, dtype=np.int64)
    sizes = [SideStats(Exact(len(x)), Exact(0.0), Exact(0.0), none, none.astype(float), True) for x in xs]
    stats = JoinStats(*sizes)
    layout = scheme_named("equi_weight").fit(Problem(stats, "inner", workers, False, ranges=ranges))
    sides, rows_in = [], np.zeros(workers)
    for i, s in enumerate(SIDES):
        routed = layout.route(s, batch(np.zeros(len(xs[i]), dtype=np.int64), seed + i, xs[i]))
        rows_in += np.bincount(routed.region, minlength=workers)
        sides.append([np.sort(xs[i][routed.row[routed.region == r]]) for r in range(workers)])
    pairs = zip(*sides, strict=True)
    rows_out = np.array([np.sum(np.searchsorted(b, a + 2, "right") - np.searchsorted(b, a - 2)) for a, b in pairs])
    assert rows_out.sum() == ranges.pair_count
    weights = rows_in + 0.1 * rows_out
    assert weights.max() / weights.mean() < 1.3
    assert weights.max() == pytest.approx(layout.predicted.weights.max(), rel=0.1)
