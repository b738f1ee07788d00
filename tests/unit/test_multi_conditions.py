"""Unit: a condition over many relations is cut into equalities and clauses, and every mistake is named with a hint."""

from __future__ import annotations

from itertools import combinations

import pytest

from evenkeel.conditions import MOST_RELATIONS, Attribute, Expression, Query, Relations, bound_in, parse_multi
from evenkeel.errors import (
    AmbiguousColumn,
    DisconnectedInput,
    DuplicateInput,
    UnknownColumn,
    UnknownRelation,
    UnparsableCondition,
    WrongInputs,
)
from evenkeel.spark.multi_binding import bind_multi

RST = Relations(("R", "S", "T"), (("a", "x"), ("a", "b", "y"), ("b", "c", "Z")))
EDGES = Relations(("E1", "E2", "E3"), (("src", "dst"),) * 3)


def parse(on, relations=RST, cross=False):
    return parse_multi(on, relations, cross)


def at(names, relations=RST):
    """`R.a` as it is bound."""
    name, column = names.split(".")
    i = relations.names.index(name)
    return i, f"`{bound_in(i, relations.columns[i].index(column))}`"


def equalities(condition):
    return [
        ((e.first.relation, e.first.sql), (e.second.relation, e.second.sql), e.null_safe) for e in condition.equalities
    ]


CHAIN = [(at("R.a"), at("S.a"), False), (at("S.b"), at("T.b"), False)]


@pytest.mark.parametrize(
    "on",
    [
        pytest.param("R.a = S.a AND S.b = T.b", id="qualified"),
        pytest.param("  R.a=S.a\n  and S.b =T.b ", id="space and case of AND"),
        pytest.param("R.a == S.a AND S.b == T.b", id="two signs"),
        pytest.param("`R`.`a` = S.`a` AND `S`.b = `T`.`b`", id="backticks"),
        pytest.param("r.A = s.a AND S.B = t.b", id="any case"),
        pytest.param("((R.a = S.a)) AND (S.b = T.b)", id="brackets"),
        pytest.param("(R.a = S.a AND S.b = T.b)", id="brackets around all"),
        pytest.param("R.a = S.a -- first\n AND S.b = T.b /* second */", id="comments"),
    ],
)
def test_ways_to_write_a_chain(on):
    found = parse(on)
    assert equalities(found) == CHAIN
    assert found.clauses == () and found.using == ()


def test_a_column_of_one_relation_needs_no_qualifier():
    found = parse("x = y AND y = c")
    assert equalities(found) == [(at("R.x"), at("S.y"), False), (at("S.y"), at("T.c"), False)]


def test_names_are_found_by_their_own_case_first():
    relations = Relations(("r", "S"), (("k", "K"), ("k",)))
    (one,) = parse("r.K = S.k", relations).equalities
    assert one.first.sql == "`_t0_1`"


def test_a_name_with_space_and_dot():
    relations = Relations(("my table", "S"), (("order id",), ("a.b",)))
    (one,) = parse("`my table`.`order id` = S.`a.b`", relations).equalities
    assert (one.first.sql, one.second.sql) == ("`_t0_0`", "`_t1_0`")


def test_a_field_of_a_struct_keeps_its_path():
    relations = Relations(("R", "S"), (("s",), ("k",)))
    (one,) = parse("R.s.id = S.k", relations).equalities
    assert (one.first.sql, one.second.sql) == ("`_t0_0`.id", "`_t1_0`")


def test_a_self_join_has_three_relations_with_the_same_columns():
    found = parse("E1.dst = E2.src AND E2.dst = E3.src AND E3.dst = E1.src", EDGES)
    assert [(e.first.relation, e.second.relation) for e in found.equalities] == [(0, 1), (1, 2), (2, 0)]
    assert {e.first.sql for e in found.equalities} == {f"`_t{i}_1`" for i in range(3)}


def test_null_safe_equalities():
    assert [e[2] for e in equalities(parse("R.a <=> S.a AND S.b = T.b"))] == [True, False]


@pytest.mark.parametrize(
    ("on", "first", "second"),
    [
        ("lower(R.a) = S.a", "lower(`_t0_0`)", "`_t1_0`"),
        ("R.a + R.x = S.a", "`_t0_0` + `_t0_1`", "`_t1_0`"),
        ("R.a = coalesce(S.a, y, 0)", "`_t0_0`", "coalesce(`_t1_0`, `_t1_2`, 0)"),
        ("R.a % 10 = S.b * 2", "`_t0_0` % 10", "`_t1_1` * 2"),
        ("R.a = CASE WHEN S.a = 1 THEN 1 ELSE y END", "`_t0_0`", "CASE WHEN `_t1_0` = 1 THEN 1 ELSE `_t1_2` END"),
    ],
)
def test_expressions_on_either_side(on, first, second):
    found = parse(f"{on} AND S.b = T.b")
    assert equalities(found) == [((0, first), (1, second), False), CHAIN[1]]


@pytest.mark.parametrize(
    ("on", "relations"),
    [
        pytest.param("T.c > 5", {2}, id="a filter"),
        pytest.param("R.a = R.x", {0}, id="an equality within a relation"),
        pytest.param("T.c = 5", {2}, id="a constant"),
        pytest.param("1 = 1", set(), id="no relation"),
        pytest.param("R.x < T.c", {0, 2}, id="an inequality"),
        pytest.param("R.x BETWEEN S.y AND T.c", {0, 1, 2}, id="between"),
        pytest.param("R.x <> T.c", {0, 2}, id="unequal"),
        pytest.param("(R.x = S.y OR S.y = T.c)", {0, 1, 2}, id="or"),
        pytest.param("R.x = S.y + T.c", {0, 1, 2}, id="an equality of three"),
        pytest.param("NOT R.x = T.c", {0, 2}, id="not"),
        pytest.param("R.x IN (T.b, T.c)", {0, 2}, id="in"),
        pytest.param("(R.x = T.c) = true", {0, 2}, id="an equality of an equality"),
        pytest.param("exists(array(R.x), v -> v = T.c)", {0, 2}, id="lambda"),
    ],
)
def test_all_else_is_a_clause(on, relations):
    found = parse(f"R.a = S.a AND {on} AND S.b = T.b")
    assert equalities(found) == CHAIN
    (clause,) = found.clauses
    assert clause.relations == relations
    assert not clause.compared if len(relations) < 2 else {x.relation for x in clause.compared} == relations


def test_the_and_of_between_does_not_cut():
    found = parse("R.x BETWEEN S.y AND S.b AND S.a NOT BETWEEN T.b AND T.c")
    assert [c.text for c in found.clauses] == ["R.x BETWEEN S.y AND S.b", "S.a NOT BETWEEN T.b AND T.c"]


def test_an_or_keeps_the_condition_whole():
    (clause,) = parse("R.a = S.a AND S.b = T.b OR R.x > 1").clauses
    assert clause.relations == {0, 1, 2}


def test_text_in_quotes_is_no_column():
    (clause,) = parse("R.a = S.a AND S.b = T.b AND Z = 'R.x = S.y AND no.such'").clauses
    assert clause.sql == "`_t2_2` = 'R.x = S.y AND no.such'" and clause.relations == {2}


def test_compared_is_one_column_of_each_relation():
    (clause,) = parse("abs(R.x - T.c) < 5  +  T.c AND R.a = S.a").clauses
    assert clause.compared == (Expression(0, "`_t0_1`"), Expression(2, "`_t2_1`"))
    assert clause.text == "abs(R.x - T.c) < 5 + T.c"


def test_compared_is_the_first_column_in_the_text():
    (clause,) = parse("abs(R.x - T.c) < 5 + T.b AND R.a = S.a").clauses
    assert clause.compared[1] == Expression(2, "`_t2_1`")


def test_one_name_for_all_relations():
    relations = Relations(("R", "S", "T"), (("k", "a"), ("b", "K"), ("k",)))
    for on in ("k", ["k"], ("k",), ["k", "k"]):
        found = parse(on, relations)
        assert equalities(found) == [((0, "`_t0_0`"), (1, "`_t1_1`"), False), ((1, "`_t1_1`"), (2, "`_t2_0`"), False)]
        assert found.using == ("k",)
    assert found.text == "R.k = S.k AND S.k = T.k"


def test_several_names():
    found = parse(["src", "dst"], EDGES)
    assert len(found.equalities) == 4 and found.using == ("src", "dst")


def test_cross():
    assert parse(None, cross=True).equalities == ()
    assert equalities(parse("R.a = S.a", cross=True)) == CHAIN[:1]
    assert parse("R.x > 1", cross=True).clauses[0].relations == {0}


def words(*relations, unshared=""):
    """A query of relations that are words of one-letter attributes."""
    letters = sorted(set("".join(relations)))
    columns = {x: {i: x for i, word in enumerate(relations) if x in word} for x in letters}
    attributes = tuple(Attribute(x, columns[x], shared=x not in unshared) for x in letters)
    return Query(tuple(f"R{i}" for i in range(len(relations))), attributes)


@pytest.mark.parametrize(
    ("query", "cyclic"),
    [
        pytest.param(words("y", "yz", "z"), False, id="chain"),
        pytest.param(words("a", "ab", "bc", "cd", "d"), False, id="chain of five"),
        pytest.param(words("abc", "a", "b", "c"), False, id="star"),
        pytest.param(words("y", "y", "y"), False, id="one key"),
        pytest.param(words("xy", "yz", "xz"), True, id="triangle"),
        pytest.param(words("ab", "bc", "cd", "ad"), True, id="cycle of four"),
        pytest.param(words("xy", "yz", "xz", "x"), True, id="triangle with a tail"),
        pytest.param(words("xy", "yz", "xz", "xyz"), False, id="triangle with one that has all"),
        pytest.param(words("ab", "ab"), False, id="two attributes of two relations"),
        pytest.param(words("ps", "ps", "p"), False, id="lineitem, partsupp, part"),
        pytest.param(words("x", "x", "y", unshared="y"), False, id="an inequality"),
        pytest.param(words("xu", "yv", "xy", "uv", unshared="uv"), False, id="inequalities close no cycle"),
        pytest.param(words("a", "b", unshared="ab"), False, id="nothing shared"),
    ],
)
def test_cyclic(query, cyclic):
    assert query.cyclic is cyclic


@pytest.mark.parametrize("relations", [3, 4, 5])
def test_cliques_are_cyclic(relations):
    pairs = list(combinations(range(relations), 2))
    assert words(*("".join("abcdefghij"[d] for d, p in enumerate(pairs) if i in p) for i in range(relations))).cyclic


def test_attributes_of_a_relation():
    query = words("y", "yz", "z")
    assert [query.of(i) for i in query.relations] == [(0,), (0, 1), (1,)]
    assert query.attributes[1].relations == {1, 2}


def refused(error, on, relations=RST, cross=False):
    with pytest.raises(error) as raised:
        parse(on, relations, cross)
    problem, _, hint = str(raised.value).rpartition("\n\nHint: ")
    assert problem and hint
    return problem, hint


def test_unknown_relation():
    problem, hint = refused(UnknownRelation, "Q.a = S.a AND S.b = T.b")
    assert "'Q'" in problem and "R, S, T" in hint
    lines = Relations(("orders", "lines"), (("k",), ("k",)))
    assert "did you mean 'orders'?" in refused(UnknownRelation, "order.k = lines.k", lines)[1]


def test_unknown_column():
    problem, hint = refused(UnknownColumn, "R.q = S.a AND S.b = T.b")
    assert problem == "The R input has no column 'q'." and "'a', 'x'" in hint
    problem, hint = refused(UnknownColumn, "R.a = S.a AND zz = c")
    assert problem == "No input has a column 'zz'." and "did you mean 'Z'?" in hint


def test_a_name_that_not_all_have():
    assert refused(UnknownColumn, ["a"])[0] == "The T input has no column 'a'."


def test_ambiguous_column():
    problem, hint = refused(AmbiguousColumn, "R.a = S.a AND b = c")
    assert problem == "Several inputs have a column 'b': S, T." and "'S.b'" in hint


def test_a_relation_with_one_name_twice():
    twice = Relations(("R", "S"), (("k", "k"), ("k",)))
    assert "R input has more than one column called 'k'" in refused(AmbiguousColumn, "R.k = S.k", twice)[0]
    cases = Relations(("R", "S"), (("k", "K"), ("k",)))
    assert len(parse("R.k = S.k", cases).equalities) == 1


@pytest.mark.parametrize(
    ("on", "lost"),
    [
        ("R.a = S.a", ["'T'"]),
        ("R.a = S.a AND T.c > 5", ["'T'"]),
        ("R.x > 5", ["'S', 'T'"]),
        ("true", ["'S', 'T'"]),
        pytest.param(
            "S.b = T.b",
            ["connects 'R' with"],
        ),
    ],
)
def test_an_input_that_nothing_connects(on, lost):
    problem, hint = refused(DisconnectedInput, on)
    assert all(name in problem for name in lost) and on in problem
    assert "'R'" not in problem or lost == ["connects 'R' with"]
    assert "cross=True" in hint


def test_two_parts_that_nothing_connects():
    four = Relations(("R", "S", "T", "U"), (("a",), ("a",), ("b",), ("b",)))
    assert "'T', 'U'" in refused(DisconnectedInput, "R.a = S.a AND T.b = U.b", four)[0]
    parse("R.a = S.a AND T.b = U.b", four, cross=True)
    parse("R.a = S.a AND T.b = U.b AND R.a < U.b", four)


@pytest.mark.parametrize("on", ["", "  ", [], [""], ["k", " "]])
def test_nothing_to_join_on(on):
    refused(UnparsableCondition, on)


@pytest.mark.parametrize("on", [None, 5, ["k", 5], {"k"}, b"k"])
def test_what_no_condition_is(on):
    assert "`on` is a" in refused(UnparsableCondition, on)[0]


@pytest.mark.parametrize(
    "on", ["R.a = S.a AND", "R.a = = S.a", "R.a = S.a; DROP TABLE x", "R.a = (SELECT 1)", "SELECT 1", "(R.a", "--"]
)
def test_what_is_no_sql_expression(on):
    assert "cannot be read" in refused(UnparsableCondition, on)[0]


def unbound(inputs):
    """What is wrong with the inputs themselves is found before any of them is looked at."""
    with pytest.raises((DuplicateInput, WrongInputs)) as raised:
        bind_multi(inputs, "k", False)
    problem, _, hint = str(raised.value).rpartition("\n\nHint: ")
    assert problem and hint
    return problem


@pytest.fixture
def frame(monkeypatch):
    class Frame:
        isStreaming = False
        columns = ("k",)

    monkeypatch.setattr("evenkeel.spark.multi_binding.DataFrame", Frame)
    return Frame()


def test_two_inputs_of_one_name(frame):
    assert "'Lines' and 'lines'" in unbound({"Lines": frame, "orders": frame, "lines": frame})


def test_number_of_inputs(frame):
    assert MOST_RELATIONS == 64
    assert "65 inputs" in unbound({f"R{i}": frame for i in range(65)})
    assert "of 1 input." in unbound({"R": frame})
    assert "of 0 inputs." in unbound({})


@pytest.mark.parametrize("inputs", [[1, 2], {1: 2, 3: 4}, None])
def test_inputs_without_names(inputs):
    assert "not a dict of names" in unbound(inputs)


def test_sixty_four_relations():
    relations = Relations(tuple(f"R{i}" for i in range(64)), (("k", "n"),) * 64)
    on = " AND ".join(f"R{i}.k = R{i + 1}.n" for i in range(63))
    assert len(parse(on, relations).equalities) == 63
    assert "'R63'" in refused(DisconnectedInput, on.rpartition(" AND ")[0], relations)[0]
