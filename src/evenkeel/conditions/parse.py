"""`on` becomes a Condition: sqlglot finds the structure, and the user's own text is what runs.

The text is cut at its top-level ANDs and only the column references in it are replaced; nothing
is regenerated, so an expression means to Spark exactly what the user wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.band import Band, merged
from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.ranges import as_bands
from evenkeel.conditions.text import Names, bind_text, depths, tokens_of, unwrap
from evenkeel.conditions.theta import Theta
from evenkeel.errors import OneSidedCondition, UnparsableCondition
from evenkeel.types import SIDES, How, Side

_EQUALITIES = (TokenType.EQ, TokenType.NULLSAFE_EQ)
_PREDICATES = (
    TokenType.LT, TokenType.GT, TokenType.LTE, TokenType.GTE, TokenType.NEQ, TokenType.IN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.IS, TokenType.NOT,
)  # fmt: skip


def parse_on(on: str | Sequence[str] | None, how: How, names: Names) -> Condition:
    if on is None:
        if how == "cross":
            return Condition(text="cross")
        raise UnparsableCondition.empty()
    if isinstance(on, str):
        if not on.strip():
            raise UnparsableCondition.empty()
        if all(names.find(side, on) is not None for side in SIDES):
            return _using([on], names)
        return _parse_text(on, names)
    if not isinstance(on, (list, tuple)) or not all(isinstance(n, str) for n in on):
        raise UnparsableCondition.wrong_type(on)
    if not on:
        raise UnparsableCondition.empty()
    once: dict[int, str] = {}
    for name in on:
        once.setdefault(names.index("left", name), name)
    return _using(list(once.values()), names)


def _using(on: list[str], names: Names) -> Condition:
    at: dict[Side, tuple[int, ...]] = {s: tuple(names.index(s, n) for n in on) for s in SIDES}
    equi = tuple(
        Equi(bound("left", i), bound("right", j), False, f"l.{n} = r.{n}")
        for n, i, j in zip(on, at["left"], at["right"], strict=True)
    )
    return Condition(" AND ".join(e.text for e in equi), equi, (), tuple(on), at)


def _parse_text(text: str, names: Names) -> Condition:
    tokens = tokens_of(text)
    _syntax(text, tokens)
    equi: list[Equi] = []
    bands: list[Band] = []
    residual: list[Theta] = []
    used: dict[Side, set[int]] = {"left": set(), "right": set()}
    for start, end in _conjuncts(text, tokens, 0, len(text)):
        part = bind_text(text, start, end, names)
        for side in SIDES:
            used[side] |= part.columns[side]
        pair = _as_equi(text, start, end, names)
        if pair is not None:
            equi.append(pair)
        else:
            bands += as_bands(text[start:end], names)
            residual.append(Theta(part.sql, text[start:end].strip()))
    for side in SIDES:
        if not used[side]:
            _suggest_name(text, names)
            raise OneSidedCondition.missing(side, text.strip())
    return Condition(
        " ".join(text.split()),
        tuple(equi),
        tuple(residual),
        (),
        {s: tuple(sorted(used[s])) for s in SIDES},
        merged(bands),
    )


def _suggest_name(text: str, names: Names) -> None:
    """A lone word that is no column of both inputs was meant as a name."""
    word = text.strip()
    if word.isidentifier():
        for side in SIDES:
            names.index(side, word)


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


def _as_equi(text: str, start: int, end: int, names: Names) -> Equi | None:
    """The conjunct as an equality of the two inputs, whichever way round it was written."""
    tree = sqlglot.parse_one(text[start:end], dialect="spark")
    if not isinstance(tree, (exp.EQ, exp.NullSafeEQ)):
        return None
    outer = [t for t, depth in depths(tokens_of(text[start:end])) if depth == 0]
    signs = [t for t in outer if t.token_type in _EQUALITIES]
    if len(signs) != 1 or any(t.token_type in _PREDICATES for t in outer):
        return None  # to Spark `a = b < c` is `(a = b) < c`, whatever the parser made of it
    first = bind_text(text, start, start + signs[0].start, names)
    second = bind_text(text, start + signs[0].end + 1, end, names)
    null_safe = isinstance(tree, exp.NullSafeEQ)
    shown = text[start:end].strip()
    if first.columns["left"] and not first.columns["right"]:
        left, right = first, second
    else:
        left, right = second, first
    if left.columns["right"] or right.columns["left"] or not left.columns["left"] or not right.columns["right"]:
        return None
    return Equi(left.sql, right.sql, null_safe, shown)
