"""Unit: text becomes a condition, and every mistake a message that helps."""

from __future__ import annotations

import pytest

from evenkeel import errors
from evenkeel.conditions import Names, parse_on

NAMES = Names(("user_id", "t", "ts", "payload", "we ird", "a", "b"), ("id", "until", "ts", "a", "B"))


def parse(on, how="inner"):
    return parse_on(on, how, NAMES)


@pytest.mark.parametrize(
    ("text", "equi", "residual"),
    [
        ("l.user_id = r.id", [("`_l0`", "`_r0`")], []),
        ("r.id == l.user_id", [("`_l0`", "`_r0`")], []),
        ("l.user_id = r.id AND l.t < r.until", [("`_l0`", "`_r0`")], ["`_l1` < `_r1`"]),
        ("(l.user_id = r.id AND (l.a = r.a))", [("`_l0`", "`_r0`"), ("`_l5`", "`_r3`")], []),
        ("l.user_id = r.id OR l.a = r.a", [], ["`_l0` = `_r0` OR `_l5` = `_r3`"]),
        ("2 * l.b = r.id + 1", [("2 * `_l6`", "`_r0` + 1")], []),
        ("USER_ID = ID", [("`_l0`", "`_r0`")], []),
        ("l.payload.x.y = r.id", [("`_l3`.x.y", "`_r0`")], []),
        ("l.`we ird` = r.id", [("`_l4`", "`_r0`")], []),
        ("l.a = 5 AND l.b = r.B", [("`_l6`", "`_r4`")], ["`_l5` = 5"]),
        (
            "l.a = r.a AND l.ts BETWEEN r.ts - INTERVAL 5 MINUTES AND r.ts",
            [("`_l5`", "`_r3`")],
            ["`_l2` BETWEEN `_r2` - INTERVAL 5 MINUTES AND `_r2`"],
        ),
        (
            "l.a = r.a AND CASE WHEN l.t = 1 AND r.id = 2 THEN true ELSE false END",
            [("`_l5`", "`_r3`")],
            ["CASE WHEN `_l1` = 1 AND `_r0` = 2 THEN true ELSE false END"],
        ),
        ("exists(l.payload, x -> x = r.id)", [], ["exists(`_l3`, x -> x = `_r0`)"]),
        ("exists(l.payload, ID -> id = r.id)", [], ["exists(`_l3`, ID -> id = `_r0`)"]),
        ("NOT l.a = r.a", [], ["NOT `_l5` = `_r3`"]),
        ("l.a = r.a < r.id", [], ["`_l5` = `_r3` < `_r0`"]),
        ("l.a = r.a IN (1)", [], ["`_l5` = `_r3` IN (1)"]),
        ("l.a = r.a -- why\n AND l.t < r.id -- not", [("`_l5`", "`_r3`")], ["`_l1` < `_r0`"]),
        ("(l.a = r.a) = (l.b = r.B)", [], ["(`_l5` = `_r3`) = (`_l6` = `_r4`)"]),
    ],
)
def test_text(text, equi, residual):
    c = parse(text)
    assert [(e.left, e.right) for e in c.equi] == equi
    assert [t.sql for t in c.residual] == residual


def test_null_safe():
    (e,) = parse("l.user_id <=> r.id").equi
    assert e.null_safe


def test_a_string_with_and_in_it_is_not_cut():
    c = parse("l.a = r.a AND l.t = 'x AND l.b = r.B'")
    assert [t.sql for t in c.residual] == ["`_l1` = 'x AND l.b = r.B'"]


def test_names():
    c = parse(["a", "ts", "a"])
    assert c.using == ("a", "ts") and c.columns == {"left": (5, 2), "right": (3, 2)}
    assert parse("a").using == ("a",)
    assert parse("b").using == ("b",)  # as Spark: the case does not matter


def test_cross():
    assert parse(None, "cross").kind == "cross"


@pytest.mark.parametrize(
    ("on", "error", "says"),
    [
        ("l.user = r.id", errors.UnknownColumn, "did you mean 'user_id'?"),
        ("user_i", errors.UnknownColumn, "did you mean 'user_id'?"),
        (["nope"], errors.UnknownColumn, "the columns are 'user_id'"),
        ("ts = 5 AND l.a = r.a", errors.AmbiguousColumn, "write 'l.ts'"),
        ("l.a = l.b", errors.OneSidedCondition, "names no column of the right input"),
        ("r.a = 1", errors.OneSidedCondition, "names no column of the left input"),
        ("l.a = = r.a", errors.UnparsableCondition, "    l.a = = r.a\n          ^"),
        ("l.a r.b", errors.UnparsableCondition, "     ^"),
        ("l.a = (r.a", errors.UnparsableCondition, "Expecting )"),
        ("l.a = 'x", errors.UnparsableCondition, "Hint:"),
        ("l.a = r.a; drop table x", errors.UnparsableCondition, "no ';'"),
        ("l.a = (select max(id) from t)", errors.UnparsableCondition, "subquery"),
        ("", errors.UnparsableCondition, "empty"),
        ([], errors.UnparsableCondition, "empty"),
        (None, errors.UnparsableCondition, "how='cross'"),
        (5, errors.UnparsableCondition, "`on` is a int"),
    ],
)
def test_mistakes(on, error, says):
    with pytest.raises(error) as caught:
        parse(on)
    assert says in str(caught.value)
    assert "\n\nHint: " in str(caught.value)


def test_the_mark_is_under_the_fault_on_the_second_line():
    with pytest.raises(errors.UnparsableCondition) as caught:
        parse("l.a = r.a\n  AND l.b == = r.B")
    assert "Hint" in str(caught.value)


def test_columns_called_case_and_end():
    names = Names(("a", "x", "end", "case"), ("a", "start", "end", "c"))
    c = parse_on("l.a = r.a AND (l.x < r.end AND l.x >= r.start)", "inner", names)
    assert [e.left for e in c.equi] == ["`_l0`"] and [t.sql for t in c.residual] == ["`_l1` < `_r2`", "`_l1` >= `_r1`"]
    for text, keys in {
        "l.end = r.end": 1,
        "(l.end = r.end AND l.a = r.a)": 2,
        "l.case = r.c AND l.a = r.a": 2,
        "l.x < coalesce(r.end, 5) AND l.a = r.a": 1,
        "CASE WHEN l.end < 3 AND r.end > 2 THEN 1 ELSE 2 END = r.c AND l.a = r.a": 1,
    }.items():
        assert len(parse_on(text, "inner", names).equi) == keys, text


def test_one_column_named_twice_in_two_cases():
    assert parse(["a", "A"]).columns == {"left": (5,), "right": (3,)}
