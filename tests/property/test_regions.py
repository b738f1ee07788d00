"""Property, against the definition: any matching pair shares exactly one region, for every scheme there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.schemes import SCHEMES, Batch, Problem, scheme_named
from evenkeel.stats import JoinStats, SideStats
from evenkeel.types import SIDES

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def side_stats(keys, fraction=1.0):
    values, counts = np.unique(keys, return_counts=True)
    return SideStats.from_sample(len(keys), 0, float(len(values)), values, counts, fraction)


def stats_of(left, right):
    return JoinStats(side_stats(left), side_stats(right))


def batch(keys, seed):
    rows = np.random.default_rng(seed).integers(-(2**63), 2**63, len(keys), dtype=np.int64)
    return Batch(keys, np.ones(len(keys), dtype=bool), rows)


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
    layout = scheme_named(scheme).fit(Problem(stats_of(left, right), how, workers))
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
    nulls = Batch(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool), np.arange(n))
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
