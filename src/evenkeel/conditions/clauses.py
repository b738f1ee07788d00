"""A condition's text in parts: the clauses between its ANDs, and the two sides of an equality.

Parts are spans of the text, so that what runs is what the user wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.text import depths, tokens_of, unwrap
from evenkeel.errors import UnparsableCondition

_EQUALITIES = (TokenType.EQ, TokenType.NULLSAFE_EQ)
_PREDICATES = (
    TokenType.LT, TokenType.GT, TokenType.LTE, TokenType.GTE, TokenType.NEQ, TokenType.IN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.IS, TokenType.NOT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Equality:
    """The spans of both sides of `=` or `<=>`."""

    sides: tuple[tuple[int, int], tuple[int, int]]
    null_safe: bool


def clauses(text: str) -> list[tuple[int, int]]:
    """The spans of the condition's clauses, once it is known to be one SQL expression."""
    tokens = tokens_of(text)
    _syntax(text, tokens)
    return _conjuncts(text, tokens, 0, len(text))


def equality(text: str, start: int, end: int) -> Equality | None:
    """The clause as an equality, if it is one."""
    tree = sqlglot.parse_one(text[start:end], dialect="spark")
    if not isinstance(tree, (exp.EQ, exp.NullSafeEQ)):
        return None
    outer = [t for t, depth in depths(tokens_of(text[start:end])) if depth == 0]
    signs = [t for t in outer if t.token_type in _EQUALITIES]
    if len(signs) != 1 or any(t.token_type in _PREDICATES for t in outer):
        return None  # to Spark `a = b < c` is `(a = b) < c`, whatever the parser made of it
    sides = (start, start + signs[0].start), (start + signs[0].end + 1, end)
    return Equality(sides, isinstance(tree, exp.NullSafeEQ))


def _syntax(text: str, tokens: list[Token]) -> exp.Expression:
    try:
        trees = sqlglot.parse(text, dialect="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        description = str(first.get("description") or "it is not a SQL expression")
        if "missing for" in description:
            description = "something is missing here"
        start = len(str(first.get("start_context") or "")) if first else 0
        # sqlglot shortens a long context: the column is counted from the line's start instead.
        if first.get("line") == 1 and first.get("col"):
            start = max(0, int(first["col"]) - len(str(first.get("highlight") or "")))
        end = start + len(str(first.get("highlight") or " "))
        raise UnparsableCondition.at(text, start, end, description) from None
    except SqlglotError as error:
        raise UnparsableCondition.at(text, 0, len(text), str(error).splitlines()[0]) from None
    tree = trees[0] if len(trees) == 1 else None
    semicolon = next((t for t in tokens if t.token_type == TokenType.SEMICOLON), None)
    if semicolon is not None:
        raise UnparsableCondition.at(text, semicolon.start, semicolon.end + 1, "one condition, no ';'")
    if tree is None or not isinstance(tree, exp.Expression):
        raise UnparsableCondition.at(text, 0, len(text), "it is not a SQL expression")
    if isinstance(tree, exp.Command) or tree.find(exp.Query, exp.DDL, exp.DML, exp.Drop):
        raise UnparsableCondition.at(text, 0, len(text), "a statement or a subquery cannot be a join condition")
    return tree


def _conjuncts(text: str, tokens: list[Token], start: int, end: int) -> list[tuple[int, int]]:
    """The spans between the ANDs that join conditions (not those of BETWEEN, nor inside brackets or CASE)."""
    inside = [t for t in tokens if start <= t.start and t.end < end]
    cuts: list[tuple[int, int]] = []
    between = 0
    at = start
    for t, depth in depths(inside):
        if depth:
            continue
        if t.token_type == TokenType.BETWEEN:
            between += 1
        elif t.token_type == TokenType.OR:
            return [(start, end)]
        elif t.token_type == TokenType.AND:
            if between:
                between -= 1
            else:
                cuts.append((at, t.start))
                at = t.end + 1
    cuts.append((at, end))
    spans: list[tuple[int, int]] = []
    for a, b in cuts:
        inner = unwrap(inside, a, b)
        spans += _conjuncts(text, tokens, *inner) if inner else [(a, b)]
    return spans
