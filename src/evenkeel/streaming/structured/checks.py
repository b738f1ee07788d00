"""Comparisons that the joiner itself can make: `left expression op right expression`, each computed by Spark."""

from __future__ import annotations

import re

from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.text import depths, tokens_of
from evenkeel.streaming.spec import Operator
from evenkeel.types import Side, other

_SIGNS: dict[TokenType, Operator] = {
    TokenType.LT: "<", TokenType.LTE: "<=", TokenType.GT: ">", TokenType.GTE: ">=", TokenType.NEQ: "<>",
    TokenType.EQ: "=", TokenType.NULLSAFE_EQ: "<=>",
}  # fmt: skip
_FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OTHER = (
    TokenType.IN, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.IS, TokenType.NOT, TokenType.OR,
    TokenType.AND, TokenType.BETWEEN,
)  # fmt: skip
_COLUMN: dict[Side, re.Pattern[str]] = {"left": re.compile(r"`_l\d+`"), "right": re.compile(r"`_r\d+`")}
_REPEATS = re.compile(r"\b(rand|random|randn|uuid|shuffle|monotonically_increasing_id)\s*\(", re.IGNORECASE)


def split(sql: str) -> tuple[str, Operator, str] | None:
    """A bound predicate as (SQL over the left input, sign, SQL over the right input); None if it is not one."""
    outer = [t for t, depth in depths(tokens_of(sql)) if depth == 0]
    signs = [t for t in outer if t.token_type in _SIGNS]
    if len(signs) != 1 or any(t.token_type in _OTHER for t in outer) or _REPEATS.search(sql):
        return None
    sign = _SIGNS[signs[0].token_type]
    first, second = sql[: signs[0].start], sql[signs[0].end + 1 :]
    for a, op, b in ((first, sign, second), (second, _FLIPPED.get(sign, sign), first)):
        if _only("left", a) and _only("right", b):
            return a.strip(), op, b.strip()
    return None


def _only(side: Side, sql: str) -> bool:
    return bool(_COLUMN[side].search(sql)) and not _COLUMN[other(side)].search(sql)
