"""Property, against an oracle written from scratch: every vector of small cubes, evenly divided or by any tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.schemes.hypercube import shares
from evenkeel.schemes.hypercube.shares import Sharing, best_shares

SOME_ROWS = st.one_of(st.integers(0, 4), st.integers(1, 1000), st.sampled_from([1, 10**6]))
UNEVEN = ("keys", "any", "coarse")


@st.composite
def cubes(draw, tables):
    dimensions, workers = draw(st.sampled_from([(1, 40), (2, 36), (3, 30), (4, 24), (5, 16)]))
    workers = draw(st.integers(1, workers))
    relations = draw(st.integers(1, 5))
    rows = np.array(draw(st.lists(SOME_ROWS, min_size=relations, max_size=relations)), dtype=float)
    dims = tuple(draw(st.frozensets(st.integers(0, dimensions - 1))) for _ in range(relations))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    heaviest = {
        (i, d): table(rng, workers, draw(st.sampled_from(UNEVEN)))
        for i, own in enumerate(dims)
        for d in sorted(own)
        if tables and draw(st.booleans())
    }
    return Sharing(rows, dims, dimensions, heaviest), workers


def table(rng, workers, kind):
    """The heaviest of p bins: of a few hashed keys, of anything that is allowed, or with many equal values."""
    parts = np.arange(1, workers + 1)
    if kind == "keys":
        keys, weights = rng.integers(0, 2**40, 6), rng.dirichlet(np.ones(6))
        heaviest = np.array([np.bincount(keys % p, weights=weights).max() for p in parts])
    elif kind == "any":
        heaviest = rng.uniform(1 / parts, 1)
    else:
        heaviest = np.array([rng.choice([1 / p, 1 / max(1, p // 2), 1.0]) for p in parts])
    return np.concatenate([[np.nan], np.clip(heaviest, 1 / parts, 1.0)])


def every_vector(dimensions, workers):
    if not dimensions:
        yield ()
        return
    for first in range(1, workers + 1):
        for others in every_vector(dimensions - 1, workers // first):
            yield (first, *others)


def load(sharing, vector):
    def left(i, d):
        return sharing.heaviest[i, d][vector[d]] if (i, d) in sharing.heaviest else 1 / vector[d]

    return sum(rows * np.prod([left(i, d) for d in sharing.dims[i]]) for i, rows in enumerate(sharing.rows))


def shipped(sharing, vector):
    replicated = [[p for d, p in enumerate(vector) if d not in own] for own in sharing.dims]
    return sum(rows * np.prod(copies) for rows, copies in zip(sharing.rows, replicated, strict=True))


def best_of_all(sharing, workers):
    vectors = list(every_vector(sharing.dimensions, workers))
    loads = np.array([load(sharing, v) for v in vectors])
    lightest = [v for v, w in zip(vectors, loads, strict=True) if w <= loads.min() * (1 + 1e-9)]
    copies = np.array([shipped(sharing, v) for v in lightest])
    return min(v for v, c in zip(lightest, copies, strict=True) if c <= copies.min() * (1 + 1e-9))


def check(sharing, workers):
    found = best_shares(sharing, workers)
    assert found == best_of_all(sharing, workers)
    assert sharing.load(found) == pytest.approx(load(sharing, found))
    assert sharing.shipped(found) == pytest.approx(shipped(sharing, found))


@settings(max_examples=300, deadline=None)
@given(cubes(tables=False))
def test_even_parts_are_the_best_of_all_vectors(cube):
    check(*cube)


@settings(max_examples=400, deadline=None)
@given(cubes(tables=True))
def test_uneven_parts_are_the_best_of_all_vectors(cube):
    check(*cube)


@settings(max_examples=150, deadline=None)
@given(cubes(tables=True))
def test_chunks_and_new_weights_change_nothing(cube):
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(shares, "CHUNK", 5)
        limits.setattr(shares, "BEAM", 4)
        limits.setattr(shares, "FEW", 3)
        limits.setattr(shares, "SAMPLE", 2)
        found = best_shares(*cube)
    assert found == best_shares(*cube)


@settings(max_examples=100, deadline=None)
@given(cubes(tables=True), st.integers(1, 20))
def test_past_the_limit_the_vector_still_fits(cube, nodes):
    sharing, workers = cube
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(shares, "MOST_NODES", nodes)
        limits.setattr(shares, "CHUNK", 1)
        found = best_shares(sharing, workers)
    assert np.prod(found) <= workers
    assert sharing.load(found) <= sharing.load([1] * sharing.dimensions) * (1 + 1e-9)


def test_the_oracle_sees_every_vector():
    all_of_them = [v for v in product(range(1, 13), repeat=3) if np.prod(v) <= 12]
    assert sorted(every_vector(3, 12)) == all_of_them
