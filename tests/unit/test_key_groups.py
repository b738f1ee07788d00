"""Unit, against brute force: rows are grouped by the join values that stand out, together over all attributes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.stats import SEEN_ENOUGH, KeyGroups, key_groups, matches
from evenkeel.types import Exact, Inexact

X, Y = 3, 7  # attributes are numbered over the whole query: those of a relation need not begin with 0


def columns(*parts):
    """Rows (x, y, ...) with how often each occurs."""
    return np.array([row for row, times in parts for _ in range(times)], dtype=np.int64)


def whole(rows, attributes=(X, Y)):
    return KeyGroups.from_sample(float(len(rows)), attributes, rows)


def grouped(groups):
    """The groups as a dict; a light value is None."""
    shown = [tuple(int(k) if known else None for k, known in zip(*row, strict=True)) for row in _rows(groups)]
    assert len(set(shown)) == len(shown)
    return dict(zip(shown, groups.counts.tolist(), strict=True))


def _rows(groups):
    return zip(groups.keys, groups.known, strict=True)


def test_joint_groups():
    rows = columns(((17, 4), 61), ((17, 5), 9), ((18, 4), 3), ((19, 8), 2), ((20, 9), 1))
    groups = whole(rows)
    assert grouped(groups) == {(17, 4): 61, (17, None): 9, (None, 4): 3, (None, None): 3}
    assert groups.rows == Exact(76.0) and groups.total == 76 and groups.fraction == 1.0


def test_skew_in_two_attributes_at_once_is_not_their_product():
    """Half of the rows have x = 1, half have y = 2, and they are the same half."""
    rows = np.concatenate([columns(((1, 2), 500)), np.arange(1000, 2000).reshape(500, 2)])
    found = grouped(whole(rows))
    assert found == {(1, 2): 500, (None, None): 500}


def test_values_of_an_attribute():
    rows = columns(((1, 50), 20), ((1, 60), 20), ((2, 50), 50), ((3, 70), SEEN_ENOUGH), ((4, 80), SEEN_ENOUGH - 1))
    groups = whole(rows)
    keys, counts = groups.values(X)
    assert (keys.tolist(), counts.tolist()) == ([2, 1, 3], [50, 40, 16])
    assert groups.values(Y)[0].tolist() == [50, 60, 70] and groups.values(Y)[1].tolist() == [70, 20, 16]
    assert groups.light_rows(X) == groups.light_rows(Y) == 15
    assert groups.light_values(X) == 1


def test_the_hash_zero_is_a_value_like_any_other():
    groups = whole(columns(((0,), 30), ((5,), 2)), (X,))
    assert grouped(groups) == {(0,): 30, (None,): 2}
    assert groups.values(X)[0].tolist() == [0]


def test_light_values_are_counted():
    rows = np.concatenate([columns(((1,), 100)), np.repeat(np.arange(10, 60), 4)[:, None]])
    groups = whole(rows, (X,))
    assert groups.light_rows(X) == 200 and groups.light_values(X) == 50
    assert groups.top_share(X) == pytest.approx(100 / 300)


def test_top_share_of_light_values():
    """Nobody stands out: the most frequent is taken to be like all others."""
    groups = whole(np.repeat(np.arange(100), 5)[:, None], (X,))
    assert len(groups.values(X)[0]) == 0
    assert groups.top_share(X) == pytest.approx(1 / 100)


def test_few_values_have_a_large_share():
    assert whole(np.repeat([5, 6], 40)[:, None], (X,)).top_share(X) == 0.5


def test_a_sample_is_scaled():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((200_000, 1)) < 0.3, 1, rng.integers(10, 50_010, (200_000, 1)))
    drawn = rows[rng.random(len(rows)) < 0.05]
    groups = KeyGroups.from_sample(200_000.0, (X,), drawn, 0.05)
    assert groups.rows == Inexact(200_000.0) and groups.fraction == 0.05
    assert groups.total == pytest.approx(200_000)
    assert groups.top_share(X) == pytest.approx(0.3, rel=0.05)
    assert groups.light_rows(X) == pytest.approx(140_000, rel=0.03)
    # The sample shows some 6,500 of the 50,000 values; how seldom they repeat tells of the others.
    assert groups.light_values(X) == pytest.approx(50_000, rel=0.25)


def test_only_so_many_values_are_known(monkeypatch):
    monkeypatch.setattr(key_groups, "MOST_KNOWN", 3)
    rows = columns(*(((k,), 16 + k) for k in range(10)))
    groups = whole(rows, (X,))
    assert groups.values(X)[0].tolist() == [9, 8, 7]
    assert groups.light_values(X) == 7 and groups.light_rows(X) == sum(range(16, 23))


def test_light_values_are_no_more_frequent_than_known_ones():
    """Without a count of distinct values, the least frequent known one says how many there are at the least."""
    groups = KeyGroups(Exact(100.0), (X,), np.array([[1], [0]]), np.array([[True], [False]]), np.array([20.0, 80.0]))
    assert groups.light_values(X) == 80  # as many as rows
    few = KeyGroups(groups.rows, groups.attributes, groups.keys, groups.known, groups.counts, {X: 2.0})
    assert few.light_values(X) == 4


def test_where():
    rows = columns(((1, 50), 20), ((1, 60), 30), ((2, 50), 40), ((3, 9), 2), ((4, 9), 2))
    groups = whole(rows)
    inside = groups.where(X, np.array([1]), inside=True)
    assert grouped(inside) == {(1, 50): 20, (1, 60): 30} and inside.total == 50
    assert inside.light_rows(X) == 0 and inside.light_values(X) == 0
    # 99 is not known, so it may be one of the two light values.
    inside = groups.where(X, np.array([1, 99]), inside=True)
    assert grouped(inside) == {(1, 50): 20, (1, 60): 30, (None, None): 2}
    outside = groups.where(X, np.array([1, 99]), inside=False)
    assert grouped(outside) == {(2, 50): 40, (None, None): 2}
    assert outside.values(Y)[1].tolist() == [40]  # what was looked up before is not remembered
    assert groups.total == inside.total + outside.total == 94


def test_where_of_nothing():
    groups = whole(columns(((1, 50), 20)))
    assert groups.where(X, np.empty(0, dtype=np.int64), inside=False).total == 20
    assert groups.where(X, np.empty(0, dtype=np.int64), inside=True).total == 0


def test_a_relation_without_attributes():
    groups = KeyGroups.from_sample(9.0, (), np.zeros((9, 0), dtype=np.int64))
    assert groups.total == 9 and groups.keys.shape == (1, 0)
    assert KeyGroups.even(9.0, ()).total == 9


def test_an_empty_relation():
    groups = whole(np.empty((0, 2), dtype=np.int64))
    other = whole(columns(((1, 50), 20), ((2, 60), 3)))
    assert groups.rows == Exact(0.0) and groups.total == 0
    for a in (X, Y):
        assert len(groups.values(a)[0]) == 0
        assert groups.light_rows(a) == groups.light_values(a) == groups.top_share(a) == 0
        assert matches(groups, other, a) == matches(other, groups, a) == matches(groups, groups, a) == 0
    assert groups.where(X, np.array([1]), inside=False).total == 0


def test_even():
    groups = KeyGroups.even(1000.0, (X,))
    assert groups.total == groups.light_rows(X) == groups.light_values(X) == 1000
    assert groups.top_share(X) == pytest.approx(1 / 1000)
    assert matches(groups, groups, X) == pytest.approx(1000)


def test_labels():
    groups = KeyGroups(
        Exact(20.0), (X,), np.array([[1]]), np.array([[True]]), np.array([20.0]), labels={X: {1: "Ithaca"}}
    )
    assert groups.label(X, 1) == "Ithaca"
    assert groups.label(X, -2) == "hash -2" and groups.label(Y, 1) == "hash 1"


def pairs(one, two):
    counts = Counter(one.tolist()), Counter(two.tolist())
    return sum(n * counts[1][k] for k, n in counts[0].items())


frequent = st.dictionaries(st.integers(-3, 3), st.integers(SEEN_ENOUGH, 40), min_size=1)


@given(one=frequent, two=frequent)
def test_matches_of_known_values_are_exact(one, two):
    keys = [np.repeat(list(side), list(side.values())) for side in (one, two)]
    groups = [whole(k[:, None], (X,)) for k in keys]
    assert matches(*groups, X) == matches(*reversed(groups), X) == pairs(*keys)


@pytest.mark.parametrize("seed", range(20))
def test_matches_against_a_count(seed):
    """The values of one relation are among those of the other, and skewed in one of them or in both."""
    rng = np.random.default_rng(seed)
    values, rows = int(rng.integers(20, 400)), rng.integers(500, 5000, 2)
    exponents = rng.choice([0.0, 0.5, 1.0, 1.5], 2)
    keys = []
    for n, exponent in zip(rows, exponents, strict=True):
        weights = np.arange(1.0, values + 1) ** -exponent
        keys.append(rng.choice(values, n, p=weights / weights.sum()))
    groups = [whole(k[:, None], (X,)) for k in keys]
    assert 2 / 3 < matches(*groups, X) / pairs(*keys) < 3 / 2


def test_matches_of_a_foreign_key():
    """A value that is frequent here and light there has as many rows there as a light one."""
    fact = np.concatenate([np.repeat(1, 5000), np.repeat(np.arange(2, 501), 3)])[:, None]
    keys = np.arange(1, 501)[:, None]
    assert matches(whole(fact, (X,)), whole(keys, (X,)), X) == pytest.approx(len(fact), rel=1e-3)


def test_matches_of_a_filtered_table():
    """Fifty values are frequent here; there, where all rows were read, are only five values."""
    fact, few = np.repeat(np.arange(50), 100)[:, None], np.arange(5)[:, None]
    assert matches(whole(fact, (X,)), whole(few, (X,)), X) == pytest.approx(500, rel=0.5)
