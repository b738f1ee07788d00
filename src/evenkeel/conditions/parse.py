"""`on` becomes a Condition: sqlglot finds the structure, and the user's own text is what runs.

The text is cut at its top-level ANDs and only the column references in it are replaced; nothing
is regenerated, so an expression means to Spark exactly what the user wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.theta import Theta
from evenkeel.errors import AmbiguousColumn, OneSidedCondition, UnknownColumn, UnparsableCondition
from evenkeel.types import SIDES, How, Side

_EQUALITIES = (TokenType.EQ, TokenType.NULLSAFE_EQ)
_PREDICATES = (
    TokenType.LT, TokenType.GT, TokenType.LTE, TokenType.GTE, TokenType.NEQ, TokenType.IN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.IS, TokenType.NOT,
)  # fmt: skip
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


@dataclass(frozen=True)
class Names:
    """The column names of both inputs, looked up as Spark does: the case does not matter."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    def of(self, side: Side) -> tuple[str, ...]:
        return self.left if side == "left" else self.right

    def find(self, side: Side, name: str) -> int | None:
        names = self.of(side)
        for matches in (
            [i for i, n in enumerate(names) if n == name],
            [i for i, n in enumerate(names) if n.lower() == name.lower()],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise AmbiguousColumn.repeated(name, side)
        return None

    def index(self, side: Side, name: str) -> int:
        at = self.find(side, name)
        if at is None:
            raise UnknownColumn.in_condition(name, side, self.of(side))
        return at


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
    tokens = _tokens(text)
    _syntax(text, tokens)
    equi: list[Equi] = []
    residual: list[Theta] = []
    used: dict[Side, set[int]] = {"left": set(), "right": set()}
    for start, end in _conjuncts(text, tokens, 0, len(text)):
        part = _bind(text, start, end, names)
        for side in SIDES:
            used[side] |= part.columns[side]
        pair = _as_equi(text, start, end, names)
        if pair is not None:
            equi.append(pair)
        else:
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
    )


def _suggest_name(text: str, names: Names) -> None:
    """A lone word that is no column of both inputs was meant as a name."""
    word = text.strip()
    if word.isidentifier():
        for side in SIDES:
            names.index(side, word)


def _tokens(text: str) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except SqlglotError as error:
        raise UnparsableCondition.at(text, 0, len(text), str(error)) from None


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
    for t, depth in _depths(inside):
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
        inner = _unwrap(inside, a, b)
        spans += _conjuncts(text, tokens, *inner) if inner else [(a, b)]
    return spans


def _depths(tokens: list[Token]) -> list[tuple[Token, int]]:
    """Every token with the number of brackets and CASEs around it; those count as being inside themselves.

    After a dot, `case` and `end` are names of columns.
    """
    out: list[tuple[Token, int]] = []
    open_: list[TokenType] = []
    for i, t in enumerate(tokens):
        name = i > 0 and tokens[i - 1].token_type == TokenType.DOT
        if t.token_type in _OPEN or (t.token_type == TokenType.CASE and not name):
            open_.append(t.token_type)
        out.append((t, len(open_)))
        closes = t.token_type in _CLOSE
        ends = t.token_type == TokenType.END and not name and TokenType.CASE in open_[-1:]
        if open_ and (closes or ends):
            open_.pop()
    return out


def _unwrap(tokens: list[Token], start: int, end: int) -> tuple[int, int] | None:
    """The span inside the brackets, when one pair of them encloses all of it."""
    inside = [t for t in tokens if start <= t.start and t.end < end]
    if len(inside) < 3 or inside[0].token_type != TokenType.L_PAREN or inside[-1].token_type != TokenType.R_PAREN:
        return None
    # The first bracket is closed by the last one when no token in between lies outside of it.
    closed = [d == 1 and t.token_type == TokenType.R_PAREN for t, d in _depths(inside)]
    return (inside[0].end + 1, inside[-1].start) if closed.index(True) == len(inside) - 1 else None


@dataclass(frozen=True)
class _Bound:
    sql: str
    columns: dict[Side, set[int]]


def _bind(text: str, start: int, end: int, names: Names) -> _Bound:
    """The span with every column reference replaced by its bound name."""
    start, end = _without_margin(text, start, end)
    tree = sqlglot.parse_one(text[start:end], dialect="spark")
    columns: dict[Side, set[int]] = {"left": set(), "right": set()}
    edits: list[tuple[int, int, str]] = []
    for column in tree.find_all(exp.Column):
        if _is_lambda_variable(column):
            continue
        side, index, last = _resolve([p.name for p in column.parts], names)
        columns[side].add(index)
        first = column.parts[0]
        edits.append((first.meta["start"], column.parts[last].meta["end"] + 1, f"`{bound(side, index)}`"))
    sql = text[start:end]
    for a, b, name in sorted(edits, reverse=True):
        sql = sql[:a] + name + sql[b:]
    return _Bound(sql + "\n" if "--" in sql else sql, columns)


def _without_margin(text: str, start: int, end: int) -> tuple[int, int]:
    """The span from its first token to its last: what stands around them is space or a comment."""
    tokens = _tokens(text[start:end])
    return (start + tokens[0].start, start + tokens[-1].end + 1) if tokens else (start, end)


def _is_lambda_variable(column: exp.Column) -> bool:
    node: Any = column
    while node is not None:
        if isinstance(node, exp.Lambda) and column.parts[0].name in {e.name for e in node.expressions}:
            return True
        node = node.parent
    return False


def _resolve(parts: list[str], names: Names) -> tuple[Side, int, int]:
    """The side and index a dotted name means, and how many of its parts that takes, less one."""
    for side in SIDES:
        if parts[0].lower() in (side[0], side) and len(parts) > 1:
            return side, names.index(side, parts[1]), 1
    found = {side: names.find(side, parts[0]) for side in SIDES}
    if all(at is not None for at in found.values()):
        raise AmbiguousColumn.in_condition(parts[0])
    for side in SIDES:
        at = found[side]
        if at is not None:
            return side, at, 0
    raise UnknownColumn.in_either(parts[0], names.left, names.right)


def _as_equi(text: str, start: int, end: int, names: Names) -> Equi | None:
    """The conjunct as an equality of the two inputs, whichever way round it was written."""
    tree = sqlglot.parse_one(text[start:end], dialect="spark")
    if not isinstance(tree, (exp.EQ, exp.NullSafeEQ)):
        return None
    outer = [t for t, depth in _depths(_tokens(text[start:end])) if depth == 0]
    signs = [t for t in outer if t.token_type in _EQUALITIES]
    if len(signs) != 1 or any(t.token_type in _PREDICATES for t in outer):
        return None  # to Spark `a = b < c` is `(a = b) < c`, whatever the parser made of it
    first = _bind(text, start, start + signs[0].start, names)
    second = _bind(text, start + signs[0].end + 1, end, names)
    null_safe = isinstance(tree, exp.NullSafeEQ)
    shown = text[start:end].strip()
    if first.columns["left"] and not first.columns["right"]:
        left, right = first, second
    else:
        left, right = second, first
    if left.columns["right"] or right.columns["left"] or not left.columns["left"] or not right.columns["right"]:
        return None
    return Equi(left.sql, right.sql, null_safe, shown)
