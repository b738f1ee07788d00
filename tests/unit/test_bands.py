"""Unit: bands are found in the text of a condition, and what is not one is left alone."""

from __future__ import annotations

import pytest

from evenkeel.conditions import Names, Span, parse_on

NAMES = Names(("user_id", "t", "ts", "payload", "we ird", "a", "b"), ("id", "until", "ts", "a", "B"))


def bands(text):
    return parse_on(text, "inner", NAMES).bands


def shown(bound):
    """A bound as text: its sign, and its constants each with theirs."""
    if bound is None:
        return None
    terms = " ".join(f"{'+' if sign == 1 else '-'} {sql}" for sign, sql in bound.terms)
    return f"{'<' if bound.strict else '<='} {terms}".strip()


@pytest.mark.parametrize(
    ("text", "left", "right", "lower", "upper"),
    [
        ("l.a < r.a", "`_l5`", "`_r3`", None, "<"),
        ("l.a <= r.a", "`_l5`", "`_r3`", None, "<="),
        ("l.a > r.a", "`_l5`", "`_r3`", "<", None),
        ("r.a > l.a", "`_l5`", "`_r3`", None, "<"),
        ("r.a <= l.a", "`_l5`", "`_r3`", "<=", None),
        ("l.a < r.a + 5", "`_l5`", "`_r3`", None, "< + 5"),
        ("l.a + 1 < r.a + 5", "`_l5`", "`_r3`", None, "< + 5 - 1"),
        ("r.a + 5 > l.a + 1", "`_l5`", "`_r3`", None, "< + 5 - 1"),
        ("l.a - 2 >= r.a - 3 + 4", "`_l5`", "`_r3`", "<= + 4 - 3 + 2", None),
        ("3 + l.a < r.a", "`_l5`", "`_r3`", None, "< - 3"),
        ("3 - l.a < r.a", "3 - `_l5`", "`_r3`", None, "<"),
        ("l.a - -3 < r.a", "`_l5`", "`_r3`", None, "< + -3"),
        ("l.a < r.a + 2 * 3 - 1", "`_l5`", "`_r3`", None, "< - 1 + 2 * 3"),
        ("l.a < r.a + (1 + 2)", "`_l5`", "`_r3`", None, "< + (1 + 2)"),
        ("2 * l.b < r.id", "2 * `_l6`", "`_r0`", None, "<"),
        ("l.a % 3 + 1 < r.a", "`_l5` % 3", "`_r3`", None, "< - 1"),
        ("cast(l.a AS int) + 1 < r.a", "cast(`_l5` AS int)", "`_r3`", None, "< - 1"),
        ("CASE WHEN l.a < 3 THEN 1 ELSE 2 END + 4 < r.a", "CASE WHEN `_l5` < 3 THEN 1 ELSE 2 END", "`_r3`", None,
         "< - 4"),
        ("l.a /* why */ + 1 < r.a -- not\n", "`_l5`", "`_r3`", None, "< - 1"),
        ("l.a BETWEEN r.a - 1 AND r.a", "`_l5`", "`_r3`", "<= - 1", "<="),
        ("r.a BETWEEN l.a - 1 AND l.a + 2", "`_l5`", "`_r3`", "<= - 2", "<= + 1"),
        ("l.a > r.a - 4 AND l.a <= r.a", "`_l5`", "`_r3`", "< - 4", "<="),
        ("l.a + 1 > r.a and r.a + 3 > l.a", "`_l5`", "`_r3`", "< - 1", "< + 3"),
        ("(l.a <= r.a AND (l.a > r.a - 4))", "`_l5`", "`_r3`", "< - 4", "<="),
        ("l.ts BETWEEN r.ts - INTERVAL 5 MINUTES AND r.ts", "`_l2`", "`_r2`", "<= - INTERVAL 5 MINUTES", "<="),
        ("l.ts < r.ts + INTERVAL '1' DAY", "`_l2`", "`_r2`", None, "< + INTERVAL '1' DAY"),
    ],
)  # fmt: skip
def test_compared(text, left, right, lower, upper):
    (band,) = bands(text)
    assert (band.left, band.right, shown(band.lower), shown(band.upper)) == (left, right, lower, upper)
    assert not band.subtracts
    assert band.kind == ("band" if lower is not None and upper is not None else "inequality")


@pytest.mark.parametrize(
    ("text", "left", "right", "lower", "upper"),
    [
        ("l.a - r.a < 5", "`_l5`", "`_r3`", None, "< + 5"),
        ("5 > l.a - r.a", "`_l5`", "`_r3`", None, "< + 5"),
        ("r.a - l.a <= 5", "`_l5`", "`_r3`", "<= - 5", None),
        ("-5 <= l.a - r.a", "`_l5`", "`_r3`", "<= + -5", None),
        ("l.a - r.a - 1 < 5", "`_l5`", "`_r3`", None, "< + 5 + 1"),
        ("l.a - 1 - r.a < 5", "`_l5` - 1", "`_r3`", None, "< + 5"),
        ("r.a - l.a + 1 < 5", "`_l5`", "`_r3`", "< - 5 + 1", None),
        ("2 * l.a - 3 * r.a < 7", "2 * `_l5`", "3 * `_r3`", None, "< + 7"),
        ("abs(l.a - r.a) <= 5", "`_l5`", "`_r3`", "<= - 5", "<= + 5"),
        ("ABS(r.a - l.a) < 5", "`_l5`", "`_r3`", "< - 5", "< + 5"),
        ("5 >= abs(l.a - r.a)", "`_l5`", "`_r3`", "<= - 5", "<= + 5"),
        ("abs(l.a - 10 * r.a) <= 2", "`_l5`", "10 * `_r3`", "<= - 2", "<= + 2"),
        ("abs(l.a - (r.a + 3)) <= 2", "`_l5`", "(`_r3` + 3)", "<= - 2", "<= + 2"),
        ("abs(l.a - r.a) BETWEEN 0 AND 2", "`_l5`", "`_r3`", "<= - 2", "<= + 2"),
        ("l.a - r.a BETWEEN -1 AND 2", "`_l5`", "`_r3`", "<= + -1", "<= + 2"),
        ("l.a - r.a < 5 AND l.a - r.a >= -1", "`_l5`", "`_r3`", "<= + -1", "< + 5"),
        ("l.ts - r.ts < INTERVAL 6 MINUTES", "`_l2`", "`_r2`", None, "< + INTERVAL 6 MINUTES"),
    ],
)
def test_subtracted(text, left, right, lower, upper):
    (band,) = bands(text)
    assert (band.left, band.right, shown(band.lower), shown(band.upper)) == (left, right, lower, upper)
    assert band.subtracts


@pytest.mark.parametrize(
    "text",
    [
        "NOT l.a < r.a",
        "!(l.a < r.a)",
        "l.a NOT BETWEEN r.a AND r.a + 1",
        "l.a < r.a OR l.b < r.B",
        "l.a <> r.a",
        "l.a < r.a < 5",
        "l.a < r.a IS TRUE",
        "l.a + r.a < 5",
        "l.a + r.a < l.b",
        "l.a < r.a + l.b",
        "l.a - r.a < l.b",
        "5 - (l.a - r.a) < 3",
        "l.a * (l.b - r.a) < 3",
        "abs(l.a + r.a) < 5",
        "abs(l.a - r.a) > 5",
        "abs(l.a - r.a) - 1 <= 5",
        "abs(l.a - r.a) * 2 <= 5",
        "abs(l.a - r.a) < rand()",
        "l.a - r.a < rand()",
        "l.a - r.a + rand() < 5",
        "l.a & r.a < 5",
        "l.a - r.a & 3 < 5",
        "l.a - r.a | 3 < 5",
        "l.a - r.a ^ 3 < 5",
        "l.a << 2 < r.a",
        "l.a - r.a || '1' < 5",
        "exists(l.payload, x -> x < r.id)",
        "CASE WHEN l.a < r.a THEN true ELSE false END",
        "greatest(l.a, r.a) < 5",
        "l.a < 5 AND r.a < 3",
        "l.a = r.a",
    ],
)
def test_not_understood(text):
    """No band: the condition is checked pair by pair, which is slower and always right."""
    assert bands(text) == ()


@pytest.mark.parametrize(
    "text", ["l.a + 1 & 3 < r.a", "l.a | 1 + 2 < r.a", "l.a ^ 1 + 2 < r.a", "l.a || '1' < r.a", "l.a::int + 1 < r.a"]
)
def test_an_operator_that_binds_less_than_a_sum_keeps_its_operands(text):
    (band,) = bands(text)
    assert band.left == text.split(" < ")[0].replace("l.a", "`_l5`") and band.upper.terms == ()


def test_bands_of_other_expressions_stay_apart():
    first, second = bands("l.a < r.a AND l.b > r.B")
    assert (first.left, second.left) == ("`_l5`", "`_l6`")
    assert len(bands("l.a BETWEEN r.a AND r.B")) == 2
    # A bound that is given twice is one band and one inequality: both are true of every pair.
    first, second = bands("l.a <= r.a AND l.a > r.a - 4 AND l.a > r.a - 9")
    assert (first.kind, second.kind) == ("band", "inequality")
    # A difference may overflow or be taken by the wall clock, a comparison not: they are not merged.
    assert len(bands("l.a - r.a < 5 AND l.a > r.a")) == 2


def test_the_text_is_kept_whatever_was_understood():
    c = parse_on("l.b = r.B AND abs(l.a - r.a) <= 3 AND l.t < r.until + 1", "inner", NAMES)
    assert len(c.equi) == 1 and len(c.bands) == 2
    assert [t.sql for t in c.residual] == ["abs(`_l5` - `_r3`) <= 3", "`_l1` < `_r1` + 1"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_reach_allows_for_rounding_of_the_offset_too(side):
    """y + 1e18 may be rounded by 64 even where y itself is small."""
    low, high = Span("x", "y", 1e18, float("inf"), 2.0**-50, "").reach_sql(side)
    reach = (low if side == "right" else high).replace("D", "").replace("x", "0.0").replace("y", "0.0")
    found = eval(reach, {"least": min, "abs": abs})
    assert (1e18 - found if side == "right" else found + 1e18) >= 64
    assert (high if side == "right" else low) == f"double('{'' if side == 'right' else '-'}Infinity')"


def test_a_between_is_shown_once():
    (band,) = bands("l.a BETWEEN r.a - 1 AND r.a")
    assert band.text == "l.a BETWEEN r.a - 1 AND r.a"
