"""Bands are found in the text of a conjunct: comparisons, BETWEEN, and differences with or without abs().

    l.a < r.b + 5                 ->  l.a - r.b < 5
    l.a BETWEEN r.a - 1 AND r.a   ->  -1 <= l.a - r.a <= 0
    abs(l.a - 10 * r.b) <= 2      ->  -2 <= l.a - 10 * r.b <= 2

What is not understood gives no band, and is then checked pair by pair like any other predicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.band import Band, Bound, Sign
from evenkeel.conditions.text import BoundText, Names, bind_text, depths, tokens_of
from evenkeel.types import SIDES, Side

_COMPARISONS = (TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE)
_OTHER_PREDICATES = (
    TokenType.EQ, TokenType.NULLSAFE_EQ, TokenType.NEQ, TokenType.IN, TokenType.LIKE, TokenType.ILIKE,
    TokenType.RLIKE, TokenType.IS, TokenType.NOT, TokenType.OR,
)  # fmt: skip
_UNREPEATABLE = ("rand", "random", "randn", "uuid", "uniform", "shuffle", "monotonically_increasing_id")
"""Functions that give another value each time: what they route by would not be what is checked."""
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = (
    TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.DOT,
    TokenType.COMMA, TokenType.INTERVAL, TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN, TokenType.R_PAREN,
)  # fmt: skip
_OPERATORS = (
    TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.INTERVAL,
)  # fmt: skip
_CONSTANT = (
    exp.Literal, exp.Interval, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Paren, exp.Cast,
    exp.DataType, exp.DataTypeParam, exp.Var, exp.IntervalSpan,
)  # fmt: skip
"""What a constant may consist of: nothing that could differ from one evaluation to the next."""


def as_bands(text: str, names: Names) -> list[Band]:
    try:
        return [band for compared in _comparisons(text) if (band := _as_band(*compared, names, text.strip()))]
    except SqlglotError:
        return []


def _comparisons(text: str) -> Iterator[tuple[str, str, str]]:
    """The conjunct as comparisons (one side, sign, other side)."""
    outer = [t for t, depth in depths(tokens_of(text)) if depth == 0]
    if any(t.token_type in _OTHER_PREDICATES for t in outer):
        return
    if any(t.text.lower() in _UNREPEATABLE for t in tokens_of(text)):
        return
    signs = [t for t in outer if t.token_type in _COMPARISONS]
    between = [t for t in outer if t.token_type == TokenType.BETWEEN]
    ands = [t for t in outer if t.token_type == TokenType.AND]
    if len(signs) == 1 and not between and not ands:
        yield text[: signs[0].start], signs[0].text, text[signs[0].end + 1 :]
    elif len(between) == 1 and len(ands) == 1 and not signs:
        value = text[: between[0].start]
        yield value, ">=", text[between[0].end + 1 : ands[0].start]
        yield value, "<=", text[ands[0].end + 1 :]


def _as_band(first: str, sign: str, second: str, names: Names, shown: str) -> Band | None:
    a, b = _Piece.of(first, names), _Piece.of(second, names)
    if a is None or b is None:
        return None
    if a.is_constant:
        a, b, sign = b, a, _FLIPPED[sign]
    if b.is_constant:
        return _difference(a, sign, b, names, shown)
    if a.side == "right":
        a, b, sign = b, a, _FLIPPED[sign]
    if a.side != "left" or b.side != "right":
        return None
    (left, here), (right, there) = _without_offset(a, names), _without_offset(b, names)
    bound = Bound((*there, *Bound(here).negated().terms), len(sign) == 1)
    return _band(left.sql, right.sql, sign, bound, shown, subtracts=False)


def _difference(a: _Piece, sign: str, constant: _Piece, names: Names, shown: str) -> Band | None:
    """`X - Y < c` or `abs(X - Y) < c`, where X is of one side and Y of the other."""
    inside = _inside_abs(a.text)
    inner = _Piece.of(inside, names) if inside is not None else a
    if inner is None or (inside is not None and sign not in ("<", "<=")):
        return None
    base, offset = (inner, ()) if inside is not None else _without_offset(inner, names)
    at = _last_sum(base.text)
    if at is None or at.token_type != TokenType.DASH:
        return None
    x, y = _Piece.of(base.text[: at.start], names), _Piece.of(base.text[at.end + 1 :], names)
    if x is None or y is None or x.side is None or y.side is None or x.side == y.side:
        return None
    strict = len(sign) == 1
    bound = Bound(((1, constant.sql), *Bound(offset).negated().terms), strict)
    if x.side == "right":
        x, y, sign, bound = y, x, _FLIPPED[sign], bound.negated()
    if inside is None:
        return _band(x.sql, y.sql, sign, bound, shown, subtracts=True)
    limit = Bound(((1, constant.sql),), strict)
    return Band(x.sql, y.sql, limit.negated(), limit, shown, subtracts=True)


def _band(left: str, right: str, sign: str, bound: Bound, shown: str, subtracts: bool) -> Band:
    lower, upper = (bound, None) if sign.startswith(">") else (None, bound)
    return Band(left, right, lower, upper, shown, subtracts)


@dataclass(frozen=True)
class _Piece:
    """A part of the condition's text and what it reads."""

    text: str
    bound: BoundText[Side]

    @classmethod
    def of(cls, text: str, names: Names) -> _Piece | None:
        return cls(text, bind_text(text, 0, len(text), names)) if text.strip() else None

    @property
    def sql(self) -> str:
        return self.bound.sql.strip()

    @property
    def side(self) -> Side | None:
        """The one side whose columns it reads, or None."""
        sides = [s for s in SIDES if self.bound.columns[s]]
        return sides[0] if len(sides) == 1 else None

    @property
    def is_constant(self) -> bool:
        if any(self.bound.columns[s] for s in SIDES):
            return False
        tree = sqlglot.parse_one(self.text, dialect="spark")
        return all(isinstance(node, _CONSTANT) for node in tree.walk())


def _without_offset(piece: _Piece, names: Names) -> tuple[_Piece, tuple[tuple[Sign, str], ...]]:
    """`base + c1 - c2` as its base and the constants, each with its sign."""
    terms: list[tuple[Sign, str]] = []
    while (at := _last_sum(piece.text)) is not None:
        sign: Sign = 1 if at.token_type == TokenType.PLUS else -1
        before, after = _Piece.of(piece.text[: at.start], names), _Piece.of(piece.text[at.end + 1 :], names)
        if before is None or after is None:
            break
        if after.is_constant:
            terms.append((sign, after.sql))
            piece = before
        elif before.is_constant and sign == 1:
            terms.append((1, before.sql))
            piece = after
        else:
            break
    return piece, tuple(terms)


def _last_sum(text: str) -> Token | None:
    """The last + or - between two operands, which is the one applied last; None where anything binds less."""
    outer = [t for t, depth in depths(tokens_of(text)) if depth == 0]
    if any(t.token_type not in _ARITHMETIC and not t.text.isidentifier() and t.text[:1] != "`" for t in outer):
        return None
    found = None
    tokens = tokens_of(text)
    for before, t in pairwise(tokens):
        summing = t.token_type in (TokenType.PLUS, TokenType.DASH) and before.token_type not in _OPERATORS
        if summing and any(t is o or (t.start, t.end) == (o.start, o.end) for o in outer):
            found = t
    return found


def _inside_abs(text: str) -> str | None:
    """What stands in abs(...), when that is all of the text."""
    tokens = tokens_of(text)
    if len(tokens) < 4 or tokens[0].text.lower() != "abs" or tokens[1].token_type != TokenType.L_PAREN:
        return None
    closed = [d == 1 and t.token_type == TokenType.R_PAREN for t, d in depths(tokens[1:])]
    if closed.index(True) != len(tokens) - 2:
        return None
    return text[tokens[1].end + 1 : tokens[-1].start]
