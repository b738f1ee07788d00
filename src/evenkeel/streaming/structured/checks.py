"""Comparisons that the joiner itself can make: `left expression op right expression`, each computed by Spark."""

from __future__ import annotations

import re

from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from evenkeel.conditions import Names
from evenkeel.conditions.band import Band
from evenkeel.conditions.ranges import as_bands
from evenkeel.conditions.text import depths, tokens_of
from evenkeel.streaming.spec import Operator
from evenkeel.types import Side, other

_SIGNS: dict[TokenType, Operator] = {
    TokenType.LT: "<", TokenType.LTE: "<=", TokenType.GT: ">", TokenType.GTE: ">=", TokenType.NEQ: "<>",
    TokenType.EQ: "=", TokenType.NULLSAFE_EQ: "<=>",
}  # fmt: skip
_WITH_END: dict[str, Operator] = {">": ">=", "<": "<="}
_STRICT: dict[str, Operator] = {">": ">", "<": "<"}
_FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OTHER = (
    TokenType.IN, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.IS, TokenType.NOT, TokenType.OR,
    TokenType.AND, TokenType.BETWEEN,
)  # fmt: skip
_COLUMN: dict[Side, re.Pattern[str]] = {"left": re.compile(r"`_l\d+`"), "right": re.compile(r"`_r\d+`")}
_REPEATS = re.compile(r"\b(rand|random|randn|uuid|shuffle|monotonically_increasing_id)\s*\(", re.IGNORECASE)


Cut = tuple[str, Operator, str]
"""SQL over the left input, a sign, SQL over the right input."""


def split(sql: str) -> list[Cut] | None:
    """A bound predicate as comparisons that must all hold; None if it is none."""
    outer = [t for t, depth in depths(tokens_of(sql)) if depth == 0]
    between = [t for t in outer if t.token_type == TokenType.BETWEEN]
    ands = [t for t in outer if t.token_type == TokenType.AND]
    if _REPEATS.search(sql):
        return None
    if len(between) == len(ands) == 1:
        value, low, high = sql[: between[0].start], sql[between[0].end + 1 : ands[0].start], sql[ands[0].end + 1 :]
        cuts = [_cut(f"{value} >= {low}"), _cut(f"{value} <= {high}")]
    else:
        cuts = [_cut(sql)]
    found = [c for c in cuts if c is not None]
    return found if len(found) == len(cuts) else None


def _cut(sql: str) -> Cut | None:
    outer = [t for t, depth in depths(tokens_of(sql)) if depth == 0]
    signs = [t for t in outer if t.token_type in _SIGNS]
    if len(signs) != 1 or any(t.token_type in _OTHER for t in outer):
        return None
    sign = _SIGNS[signs[0].token_type]
    first, second = sql[: signs[0].start], sql[signs[0].end + 1 :]
    for a, op, b in ((first, sign, second), (second, _FLIPPED.get(sign, sign), first)):
        if _only("left", a) and _only("right", b):
            return a.strip(), op, b.strip()
    return None


def differences(text: str, names: Names) -> list[Band]:
    """`abs(l.a - r.a) <= 2` and its like, as the bands they are; none if any part of it is something else."""
    outer = [t for t, depth in depths(tokens_of(text)) if depth == 0]
    bands = as_bands(text, names)
    compared = 2 if any(t.token_type == TokenType.BETWEEN for t in outer) else 1
    return bands if len(bands) == compared and all(b.subtracts for b in bands) else []


def compared(band: Band, wide: str) -> list[Cut]:
    """`lower <= left - right <= upper` as `left >= right + lower` and `left <= right + upper`.

    `wide` is a type in which the sums are exact, or empty if they are.
    """
    left, right = (f"cast({sql} AS {wide})" if wide else f"({sql})" for sql in (band.left, band.right))
    out: list[Cut] = []
    for bound, sign in ((band.lower, ">"), (band.upper, "<")):
        if bound is not None:
            terms = "".join(f" {'+' if s > 0 else '-'} ({constant})" for s, constant in bound.terms)
            op: Operator = _WITH_END[sign] if not bound.strict else _STRICT[sign]
            out.append((left, op, right + terms))
    return out


def _only(side: Side, sql: str) -> bool:
    return bool(_COLUMN[side].search(sql)) and not _COLUMN[other(side)].search(sql)
