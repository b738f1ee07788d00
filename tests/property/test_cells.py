"""The contract of every hypercube scheme: rows that agree in all attributes share exactly one cell."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel import dealing
from evenkeel.conditions import Attribute, Query
from evenkeel.schemes.hypercube import CUBES, CubeProblem
from evenkeel.schemes.hypercube.layout import cell_rows, in_pattern
from evenkeel.schemes.hypercube.per_value import with_heavy_values
from evenkeel.schemes.hypercube.single import attributes_of
from evenkeel.stats import KeyGroups

SCALE = 400
"""Planned for so many times the rows that are routed, so that the hot values of so few rows are known."""


@st.composite
def problems(draw):
    """A query graph of 2 to 5 relations, some rows of each, and a plan's view of many more rows like them."""
    relations = draw(st.integers(2, 5))
    attributes = []
    for a in range(draw(st.integers(1, 4))):
        # An attribute of one relation alone is one that only an inequality reads.
        members = draw(st.sets(st.integers(0, relations - 1), min_size=1, max_size=relations))
        attributes.append(Attribute(f"a{a}", {i: f"c{a}" for i in members}, shared=len(members) > 1))
    query = Query(tuple(f"R{i}" for i in range(relations)), tuple(attributes))
    values = st.sampled_from([7, 7, 7, -3, 0, 2**62 + 1, -(2**63)]) | st.integers(-50, 50)
    rows = []
    for i in range(relations):
        width = len(query.of(i))
        n = draw(st.integers(0, 4))
        keys = draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=n, max_size=n))
        rows.append(np.array(keys, dtype=np.int64).reshape(n, width))
    workers = draw(st.integers(1, 40))
    groups = tuple(
        KeyGroups.from_sample(SCALE * len(r), query.of(i), np.repeat(r, 20, axis=0), 20 / SCALE)
        if query.of(i)
        else KeyGroups.even(SCALE * len(r), ())
        for i, r in enumerate(rows)
    )
    numbers = [np.array(draw(st.lists(st.integers(-(2**62), 2**62), min_size=len(r), max_size=len(r)))) for r in rows]
    return CubeProblem(query, groups, workers), rows, [n.astype(np.int64) for n in numbers]


@pytest.mark.parametrize("scheme", CUBES, ids=lambda s: s.name)
@settings(max_examples=150)
@given(problem=problems())
def test_matching_rows_share_exactly_one_cell(scheme, problem):
    posed, rows, numbers = problem
    assert_exactly_once(scheme.fit(posed), posed, rows, numbers)


@settings(max_examples=200)
@given(problem=problems(), heavy=st.lists(st.sets(st.sampled_from([7, -3, 0, -(2**63)])), min_size=4, max_size=4))
def test_whatever_values_are_heavy(problem, heavy):
    posed, rows, numbers = problem
    chosen = tuple(np.array(sorted(h), dtype=np.int64) for h in heavy[: len(posed.query.attributes)])
    layout = with_heavy_values(posed, attributes_of(posed), chosen, posed.input_rows)
    assert len(layout.blocks) == np.prod([len(h) + 1 for h in chosen])
    assert_exactly_once(layout, posed, rows, numbers)


def assert_exactly_once(layout, posed, rows, numbers):
    cells = []
    for i, keys in enumerate(rows):
        routed = layout.route(i, keys, numbers[i])
        cells.append([set(routed.region[routed.row == k].tolist()) for k in range(len(keys))])
        assert len(routed.row) == sum(map(len, cells[i])), "a row is twice in one cell"
    for combination in product(*(range(len(r)) for r in rows)):
        if not _agree(posed.query, rows, combination):
            continue
        shared = set.intersection(*(cells[i][k] for i, k in enumerate(combination)))
        assert len(shared) == 1, f"{combination} meets in {shared}"


def _agree(query, rows, combination) -> bool:
    for a, attribute in enumerate(query.attributes):
        values = {int(rows[i][combination[i], query.of(i).index(a)]) for i in attribute.columns}
        if len(values) > 1:
            return False
    return True


@pytest.mark.parametrize("scheme", CUBES, ids=lambda s: s.name)
@settings(max_examples=60)
@given(problem=problems())
def test_predicted_rows_are_what_arrives_where_all_values_are_known(scheme, problem):
    posed, rows, _ = problem
    layout = scheme.fit(posed)
    arrived = np.zeros(layout.workers)
    for i, keys in enumerate(rows):
        if not len(keys):
            continue
        many = np.repeat(keys, SCALE, axis=0)
        routed = layout.route(i, many, dealing.number(np.arange(len(many))))
        arrived += np.bincount(np.mod(routed.region, layout.workers), minlength=layout.workers)
    assert arrived.sum() == pytest.approx(layout.predicted.rows_in.sum())
    # Rows that are spread by number differ by one a cell and block from an even division.
    cells = sum(len(b.cells) for b in layout.blocks)
    assert np.abs(arrived - layout.predicted.rows_in).max() <= 2 * cells * len(rows)


def test_groups_of_all_blocks_are_all_rows():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 5, (1000, 2))
    groups = KeyGroups.from_sample(1000, (0, 1), keys)
    heavy = (np.array([1, 2]), np.array([3]))
    total = sum(in_pattern(groups, p, heavy).total for p in product(range(3), range(2)))
    assert total == 1000
    assert cell_rows(0, groups, ()).sum() == 1000
