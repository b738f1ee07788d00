"""The text of a condition: its tokens and brackets, and the columns it names, bound to the inputs.

Text is cut and column references are replaced in it; nothing is regenerated, so an expression means to Spark
exactly what the user wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from evenkeel.conditions.condition import bound
from evenkeel.errors import AmbiguousColumn, UnknownColumn, UnparsableCondition
from evenkeel.types import SIDES, Side

S = TypeVar("S")
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def folded(name: str, exact: bool) -> str:
    """What two names have in common that are the same to Spark."""
    return name if exact else name.lower()


def found_in(names: Sequence[str], name: str, exact: bool, source: str) -> int | None:
    """The place of a column; that of the very name if there are several that are alike."""
    same = [i for i, n in enumerate(names) if n == name]
    same = same or [i for i, n in enumerate(names) if folded(n, exact) == folded(name, exact)]
    if len(same) > 1:
        raise AmbiguousColumn.repeated(name, source)
    return same[0] if same else None


@dataclass(frozen=True)
class Names:
    """The column names of both inputs, looked up as Spark does: the case does not matter, unless Spark is told so."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    exact: bool = False
    """Whether the case matters."""

    def of(self, side: Side) -> tuple[str, ...]:
        return self.left if side == "left" else self.right

    def find(self, side: Side, name: str) -> int | None:
        return found_in(self.of(side), name, self.exact, side)

    def fold(self, name: str) -> str:
        return folded(name, self.exact)

    def index(self, side: Side, name: str) -> int:
        at = self.find(side, name)
        if at is None:
            raise UnknownColumn.in_condition(name, side, self.of(side))
        return at

    @property
    def sources(self) -> tuple[Side, ...]:
        return SIDES

    def bound(self, source: Side, index: int) -> str:
        return bound(source, index)

    def resolve(self, parts: list[str]) -> tuple[Side, int, int]:
        for side in SIDES:
            if parts[0].lower() in (side[0], side) and len(parts) > 1:
                return side, self.index(side, parts[1]), 1
        found = {side: self.find(side, parts[0]) for side in SIDES}
        if all(at is not None for at in found.values()):
            raise AmbiguousColumn.in_condition(parts[0])
        for side in SIDES:
            at = found[side]
            if at is not None:
                return side, at, 0
        raise UnknownColumn.in_either(parts[0], self.left, self.right)


def tokens_of(text: str) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except SqlglotError as error:
        raise UnparsableCondition.at(text, 0, len(text), str(error)) from None


def depths(tokens: list[Token]) -> list[tuple[Token, int]]:
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


def unwrap(tokens: list[Token], start: int, end: int) -> tuple[int, int] | None:
    """The span inside the brackets, when one pair of them encloses all of it."""
    inside = [t for t in tokens if start <= t.start and t.end < end]
    if len(inside) < 3 or inside[0].token_type != TokenType.L_PAREN or inside[-1].token_type != TokenType.R_PAREN:
        return None
    # The first bracket is closed by the last one when no token in between lies outside of it.
    closed = [d == 1 and t.token_type == TokenType.R_PAREN for t, d in depths(inside)]
    return (inside[0].end + 1, inside[-1].start) if closed.index(True) == len(inside) - 1 else None


class Resolver(Protocol[S]):
    """Knows the columns of the inputs, here called sources."""

    @property
    def sources(self) -> tuple[S, ...]: ...

    def resolve(self, parts: list[str]) -> tuple[S, int, int]:
        """The source and column index that a dotted name means, and how many of its parts that takes, less one."""
        ...

    def bound(self, source: S, index: int) -> str: ...


@dataclass(frozen=True)
class BoundText(Generic[S]):
    sql: str
    columns: dict[S, set[int]]
    """The columns it reads of every source."""


def bind_text(text: str, start: int, end: int, names: Resolver[S]) -> BoundText[S]:
    """The span with every column reference replaced by its bound name."""
    start, end = _without_margin(text, start, end)
    tree = sqlglot.parse_one(text[start:end], dialect="spark")
    columns: dict[S, set[int]] = {source: set() for source in names.sources}
    edits: list[tuple[int, int, str]] = []
    for column in column_references(tree):
        source, index, last = names.resolve([p.name for p in column.parts])
        columns[source].add(index)
        first = column.parts[0]
        edits.append((first.meta["start"], column.parts[last].meta["end"] + 1, f"`{names.bound(source, index)}`"))
    sql = text[start:end]
    for a, b, name in sorted(edits, reverse=True):
        sql = sql[:a] + name + sql[b:]
    return BoundText(sql + "\n" if "--" in sql else sql, columns)


def column_references(tree: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression reads; the variable of a lambda is none."""
    return (c for c in tree.find_all(exp.Column) if not _is_lambda_variable(c))


def _without_margin(text: str, start: int, end: int) -> tuple[int, int]:
    """The span from its first token to its last: what stands around them is space or a comment."""
    tokens = tokens_of(text[start:end])
    return (start + tokens[0].start, start + tokens[-1].end + 1) if tokens else (start, end)


def _is_lambda_variable(column: exp.Column) -> bool:
    node: Any = column
    while node is not None:
        if isinstance(node, exp.Lambda) and column.parts[0].name.lower() in {e.name.lower() for e in node.expressions}:
            return True
        node = node.parent
    return False
