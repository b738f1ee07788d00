"""Unit, on small data that is known by heart: the order of joins, and the sizes it rests on."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from evenkeel.conditions import Attribute, Clause, Query
from evenkeel.plan.join_order import PASSES, Estimator, newly_checkable
from evenkeel.stats import KeyGroups


def query(relations, clauses=(), unshared=""):
    """Relations as words of one-letter attributes; a clause is a word of relations."""
    names = tuple(relations)
    letters = sorted(set("".join(relations.values())))
    attributes = tuple(
        Attribute(x, {i: f"{n}.{x}" for i, n in enumerate(names) if x in relations[n]}, shared=x not in unshared)
        for x in letters
    )
    made = tuple(Clause(word, word, frozenset(names.index(n) for n in word)) for word in clauses)
    return Query(names, attributes, made)


def read(query, *tables):
    """All rows of every relation; a table is a list of rows in the order of the relation's attributes."""
    return [
        KeyGroups.from_sample(float(len(t)), query.of(i), np.array(t, dtype=np.int64).reshape(len(t), len(query.of(i))))
        for i, t in enumerate(tables)
    ]


def best(query, groups, arriving=None):
    """The order when every row arrives once, or as often as said."""
    return Estimator(query, groups).order(arriving or [g.total for g in groups])


def named(query, order):
    return "".join(query.names[i] for i in order.relations)


CHAIN = {"R": "y", "S": "yz", "T": "z"}


def test_the_smaller_result_first():
    """R matches every row of S ten times, T a tenth of them: S and T are joined first."""
    q = query(CHAIN)
    groups = read(
        q,
        [[y] for y in range(20) for _ in range(200)],
        [[y, z] for y in range(20) for z in range(20)],
        [[z] for z in range(2) for _ in range(20)],
    )
    order = best(q, groups)
    assert order.relations[-1] == 0
    assert order.rows[1] == pytest.approx(40 * 20)
    assert order.result == pytest.approx(40 * 20 * 200)
    assert order.intermediate == order.rows[1]


def test_the_first_relation_is_the_larger_of_two():
    q = query({"R": "y", "S": "y"})
    small, large = [[y] for y in range(5)], [[y] for y in range(5) for _ in range(100)]
    assert named(q, best(q, read(q, small, large))) == "SR"
    assert named(q, best(q, read(q, large, small))) == "RS"


def test_the_selectivity_of_known_values():
    q = query({"R": "y", "S": "y"})
    groups = read(q, [[0]] * 60 + [[1]] * 40, [[0]] * 20 + [[2]] * 80)
    found = Estimator(q, groups).selectivity(0, 1, 0)
    assert found == Estimator(q, groups).selectivity(1, 0, 0) == pytest.approx(60 * 20 / (100 * 100))


def test_the_rows_of_a_hot_value_multiply():
    """Half of either side has one value: a quarter of all pairs, where even values would give a hundredth."""
    q = query({"R": "y", "S": "y"})
    rows = [[0]] * 1000 + [[y] for y in range(1, 51) for _ in range(20)]
    order = best(q, read(q, rows, rows))
    assert order.result == pytest.approx(1000 * 1000 + 50 * 20 * 20)


@pytest.mark.parametrize("names", list(permutations("FAB")))
def test_a_star_streams_the_fact(names):
    """However the inputs are listed, the fact goes through the tables of its dimensions, the filtered one first."""
    words = {"F": "ab", "A": "a", "B": "b"}
    tables = {
        "F": [[a, b] for a in range(100) for b in range(50)],
        "A": [[a] for a in range(100)],
        "B": [[b] for b in range(5)],
    }
    q = query({n: words[n] for n in names})
    order = best(q, read(q, *(tables[n] for n in names)))
    assert named(q, order) == "FBA"
    assert order.rows[0] == 5000


def test_clauses_count_when_they_can_be_checked():
    q = query(CHAIN, clauses=["RT", "RST", "RS"])
    groups = [KeyGroups.even(1000.0, q.of(i)) for i in q.relations]
    estimator = Estimator(q, groups)
    assert estimator.extended(1000.0, [0], 1) == pytest.approx(1000 * PASSES)
    assert estimator.extended(1000.0, [0, 1], 2) == pytest.approx(1000 * PASSES**2)
    assert estimator.extended(1000.0, [1], 2) == pytest.approx(1000)


def test_newly_checkable():
    q = query({"R": "a", "S": "a", "T": "a", "U": "a"}, clauses=["RS", "ST", "RT", "RSTU", "U"])

    def texts(joined, relation):
        return [c.text for c in newly_checkable(q.clauses, joined, relation)]

    assert texts([0], 1) == ["RS"]
    assert texts([0, 1], 2) == ["ST", "RT"]
    assert texts([0, 1, 2], 3) == ["RSTU", "U"]
    assert texts([2], 3) == ["U"]


def test_every_clause_is_checked_once():
    q = query({"R": "a", "S": "a", "T": "a", "U": "a"}, clauses=["RS", "ST", "RT", "RSTU", "SU"])
    for order in permutations(range(4)):
        found = [c for k in range(1, 4) for c in newly_checkable(q.clauses, order[:k], order[k])]
        assert sorted(c.text for c in found) == sorted(c.text for c in q.clauses)


def test_a_triangle():
    """The third relation closes the cycle: both of its attributes thin out the result."""
    q = query({"R": "xy", "S": "yz", "T": "xz"})
    edges = [[a, b] for a in range(30) for b in range(30)]
    order = best(q, read(q, edges, edges, edges))
    assert order.rows == pytest.approx((900, 30**3, 30**3))
    assert q.cyclic


def test_a_thin_side_of_a_triangle_comes_early():
    q = query({"R": "xy", "S": "yz", "T": "xz"})
    edges = [[a, b] for a in range(30) for b in range(30)]
    order = best(q, read(q, edges, edges, [[0, 0]] * 5))
    assert 2 in order.relations[:2]


def test_inputs_that_nothing_connects_come_last():
    """Cross: what equalities connect is joined first, and every combination with the rest follows."""
    q = query({"R": "y", "S": "y", "T": ""})
    groups = [KeyGroups.even(100.0, (0,)), KeyGroups.even(100.0, (0,)), KeyGroups.even(7.0, ())]
    order = best(q, groups)
    assert order.relations[-1] == 2
    assert order.result == pytest.approx(700)


def test_nothing_connects_anything():
    q = query({"R": "", "S": "", "T": ""})
    order = best(q, [KeyGroups.even(n, ()) for n in (10.0, 20.0, 30.0)])
    assert order.result == 6000 and order.intermediate == 200
    assert order.relations[-1] == 2


def test_an_inequality_alone_connects_weakly():
    """T.y is an attribute by itself: T joins last, and a third of the combinations pass."""
    q = query({"R": "x", "S": "x", "T": "y"}, clauses=["ST"], unshared="y")
    order = best(q, [KeyGroups.even(1000.0, q.of(i)) for i in q.relations])
    assert order.relations[-1] == 2
    assert order.rows[1:] == pytest.approx((1000, 1000 * 1000 * PASSES))


def test_empty_relations():
    q = query(CHAIN)
    order = best(q, [KeyGroups.even(0.0, q.of(i)) for i in q.relations])
    assert sorted(order.relations) == [0, 1, 2] and order.rows == (0, 0, 0)
    assert best(q, read(q, [[1]] * 50, [[1, 2]] * 50, [])).result == 0


@pytest.mark.parametrize("seed", range(10))
def test_estimates_of_a_chain(seed):
    """Even values, all of them in every relation: what is estimated is what a count finds."""
    rng = np.random.default_rng(seed)
    q = query(CHAIN)
    values = int(rng.integers(5, 30))
    tables = [rng.integers(0, values, (2000, len(q.of(i)))) for i in q.relations]
    counts = [np.bincount(t[:, 0], minlength=values) for t in (tables[0], tables[2])]
    expected = sum(counts[0][y] * counts[1][z] for y, z in tables[1].tolist())
    order = best(q, read(q, *tables))
    assert order.result == pytest.approx(float(expected), rel=0.05)


def test_the_relation_that_arrives_most_often_streams():
    """Copies count: a table of a million rows is built of a relation that has a thousand."""
    q = query({"R": "y", "S": "y"})
    groups = [KeyGroups.even(1000.0, (0,)), KeyGroups.even(900.0, (0,))]
    assert named(q, best(q, groups)) == "RS"
    assert named(q, best(q, groups, [1000.0, 1e6])) == "SR"


def test_attributes_that_go_together_are_not_independent():
    """A part has four suppliers: lines and offers agree in both or in neither, as in TPC-H."""
    rng = np.random.default_rng(3)
    part = rng.integers(0, 5000, 40_000)
    lines = np.stack([part, part % 97 + 97 * rng.integers(0, 4, len(part))], axis=1)
    offers = np.unique(lines, axis=0)
    both = {0: "p", 1: "s"}
    query = Query(("L", "O"), (Attribute("p", {0: "p", 1: "p"}), Attribute("s", {0: "s", 1: "s"})), text=str(both))
    assert query.together(0) == {(0, 1)}
    groups = [KeyGroups.from_sample(len(k), (0, 1), k, 1.0, query.together(0)) for k in (lines, offers)]
    result = Estimator(query, groups).order([len(lines), len(offers)]).result
    assert 0.9 * len(lines) < result < 1.1 * len(lines)
