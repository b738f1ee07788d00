"""Unit, on worked examples: the cubes of the literature, and the shapes that queries have."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from evenkeel.schemes.hypercube import shares
from evenkeel.schemes.hypercube.shares import Sharing, best_shares

H = 1000.0
SIX_RELATIONS = [("chain", 6), ("star", 6), ("cycle", 6), ("clique", 6)]
TEN_DIMENSIONS = [("chain", 11), ("star", 11), ("cycle", 10), ("clique", 5), ("apart", 10)]


def sharing(*relations, rows=None):
    """Relations as words of one-letter dimensions, of H rows each."""
    names = sorted(set("".join(relations)))
    dims = tuple(frozenset(names.index(x) for x in relation) for relation in relations)
    return Sharing(np.array([H] * len(relations) if rows is None else rows, dtype=float), dims, len(names))


@pytest.mark.parametrize(
    ("relations", "workers", "expected", "load"),
    [
        pytest.param(("y", "yz", "z"), 64, (8, 8), 1 / 8 + 1 / 64 + 1 / 8, id="hash"),
        pytest.param(("a", "b", "c"), 64, (4, 4, 4), 3 / 4, id="random"),
        pytest.param(("a", "ab", "c"), 64, (9, 1, 7), 2 / 9 + 1 / 7, id="hybrid"),
        pytest.param(("xy", "yz", "xz"), 64, (4, 4, 4), 3 / 16, id="triangle"),
        pytest.param(("y", "y", "y"), 64, (64,), 3 / 64, id="one key"),
        pytest.param(("ab", "bc", "cd", "d"), 64, (1, 8, 1, 8), 4 / 8, id="four in two pairs"),
    ],
)
def test_relations_of_equal_size(relations, workers, expected, load):
    cube = sharing(*relations)
    assert best_shares(cube, workers) == expected
    assert cube.load(expected) == pytest.approx(load * H)


def test_the_hash_cube_of_36_workers_ships_thirteen_relations():
    cube = sharing("y", "yz", "z")
    assert best_shares(cube, 36) == (6, 6)
    assert cube.shipped((6, 6)) == 13 * H


def test_relations_on_one_key_are_not_copied():
    cube = sharing("y", "y", "y", rows=[100, 2000, 30])
    assert cube.shipped(best_shares(cube, 64)) == 2130


def test_seven_workers_are_not_wasted_on_three_dimensions():
    cube = sharing("a", "b", "c")
    found = best_shares(cube, 7)
    assert np.prod(found) <= 7
    assert cube.load(found) < cube.load((1, 1, 1))
    assert found == (1, 2, 3)


def test_parts_are_in_proportion_to_the_relations():
    cube = sharing("a", "b", rows=[4 * H, H])
    assert best_shares(cube, 64) == (16, 4)


@pytest.mark.parametrize("attributes", ["ab", "abcd", "abcdefgh"])
def test_a_star_divides_the_fact_and_copies_small_tables(attributes):
    cube = sharing(attributes, *attributes, rows=[1e6] + [5.0] * len(attributes))
    found = best_shares(cube, 64)
    assert np.prod(found) == 64
    assert cube.load(found) <= 1e6 / 64 + 5.0 * len(attributes)


def test_a_relation_much_smaller_than_the_others_is_copied():
    cube = sharing("a", "ab", "c", rows=[1e6, 1e6, 3])
    assert best_shares(cube, 64) == (64, 1, 1)


def test_a_relation_without_dimensions_is_everywhere():
    cube = Sharing(np.array([H, 10.0]), (frozenset({0}), frozenset()), 1)
    assert best_shares(cube, 8) == (8,)
    assert cube.load((8,)) == H / 8 + 10
    assert cube.shipped((8,)) == H + 80


def test_of_equal_loads_the_one_that_ships_least():
    """One key is in one bin, however many there are."""
    cube = Sharing(np.array([H, H]), (frozenset({0}), frozenset({1})), 2, {(0, 0): np.ones(13)})
    assert best_shares(cube, 12) == (1, 12)


def test_of_dimensions_that_divide_the_same_the_last():
    assert best_shares(sharing("abc", "abc"), 12) == (1, 1, 12)


def test_what_divides_less_is_not_used():
    assert best_shares(sharing("ab", "b", "bc"), 12) == (1, 12, 1)


def test_skewed_keys_leave_parts_to_others():
    """Half of S has one z; what more parts of z would not lighten, parts of y do."""
    parts = np.arange(1, 66)
    skewed = np.concatenate([[np.nan], 0.5 + 0.5 / parts])
    even = sharing("y", "yz", "z")
    cube = Sharing(even.rows, even.dims, 2, {(1, 1): skewed, (2, 1): skewed})
    found = best_shares(cube, 64)
    assert found[0] > 8 > found[1]
    assert cube.load(found) < cube.load((8, 8))


def test_more_bins_may_be_worse():
    """Two keys whose hashes are equal modulo three, six and nine, but not modulo two."""
    heaviest = np.array([np.nan, 1, 0.5, 1, 0.5, 0.5, 1, 0.5, 0.5, 1])
    cube = Sharing(np.array([H]), (frozenset({0}),), 1, {(0, 0): heaviest})
    assert best_shares(cube, 9) == (2,)


@pytest.mark.parametrize("workers", [1, 2, 64])
def test_nothing_to_divide(workers):
    assert best_shares(Sharing(np.zeros(2), (frozenset({0}), frozenset({1})), 2), workers) == (1, 1)
    assert best_shares(Sharing(np.array([H]), (frozenset(),), 0), workers) == ()
    assert best_shares(Sharing(np.empty(0), (), 3), workers) == (1, 1, 1)


def test_one_worker_has_one_cell():
    assert best_shares(sharing("xy", "yz", "xz"), 1) == (1, 1, 1)


def query(shape, relations, private):
    """Which dimensions each relation has: one for each pair that is joined; if asked for, its own."""
    pairs = {
        "chain": [(i, i + 1) for i in range(relations - 1)],
        "star": [(0, i) for i in range(1, relations)],
        "cycle": [(i, (i + 1) % relations) for i in range(relations)],
        "clique": list(combinations(range(relations), 2)),
        "apart": [(i,) for i in range(relations)],
    }[shape]
    dims = [{d for d, pair in enumerate(pairs) if i in pair} for i in range(relations)]
    if private:
        dims = [own | {len(pairs) + i} for i, own in enumerate(dims)]
    return tuple(map(frozenset, dims)), len(pairs) + private * relations, len(pairs)


def hashed(rng, workers):
    """The heaviest of p bins of a few hundred keys, some of them frequent."""
    keys, weights = rng.integers(0, 2**40, 300), np.arange(1, 301) ** -rng.uniform(0.2, 1.2)
    weights /= weights.sum()
    bins = [np.bincount(keys % p, weights=weights).max() for p in range(1, workers + 1)]
    return np.concatenate([[np.nan], bins])


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(3)
    return [hashed(rng, 4096) for _ in range(4)]


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize(("shape", "relations"), SIX_RELATIONS + TEN_DIMENSIONS)
@pytest.mark.parametrize("sizes", ["equal", "any", "skewed"])
def test_the_search_is_exhaustive_for_usual_queries(tables, shape, relations, private, sizes):
    dims, dimensions, keys = query(shape, relations, private)
    rng = np.random.default_rng(7)
    rows = np.full(relations, 1e6) if sizes == "equal" else np.round(10 ** rng.uniform(3, 7, relations))
    skewed = [(i, d) for i in range(relations) for d in sorted(dims[i]) if d < keys] if sizes == "skewed" else []
    cube = Sharing(rows, dims, dimensions, {key: tables[rng.integers(len(tables))] for key in skewed})
    search = shares._Search(cube, 4096)
    found = search.run()
    assert search.exhaustive and search.nodes < shares.MOST_NODES / 4
    assert np.prod(found) <= 4096
    for d, e in combinations(range(dimensions), 2):  # no dimension gains by the parts of another
        swapped = list(found)
        swapped[d], swapped[e] = swapped[e], swapped[d]
        assert cube.load(found) <= cube.load(swapped) * (1 + 1e-9)


def test_past_the_limit_the_best_so_far_is_returned(monkeypatch):
    monkeypatch.setattr(shares, "MOST_NODES", 1)
    dims, dimensions, _ = query("star", 6, False)
    cube = Sharing(np.array([9e5, 2e5, 7e5, 1e5, 5e5, 3e5]), dims, dimensions)
    search = shares._Search(cube, 4096)
    found = search.run()
    assert not search.exhaustive
    assert np.prod(found) <= 4096 and cube.load(found) < cube.load((5, 5, 5, 5, 5)) * 1.05
