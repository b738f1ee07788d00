"""A condition over any number of named relations, and the join attributes that its equalities make.

    "R.y = S.y AND S.z = T.z AND T.t < R.x"   attributes {R.y, S.y}, {S.z, T.z}, {T.t}, {R.x}; clause T.t < R.x

An attribute is a class of expressions that are equal in every result: the axes of a hypercube are attributes.
An expression that only an inequality compares is an attribute by itself.

Columns are bound by position: column j of relation i is `_t{i}_{j}`, so no two names of the users' can clash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot

from evenkeel.conditions.clauses import clauses, equality
from evenkeel.conditions.text import bind_text, column_references, folded, found_in
from evenkeel.errors import AmbiguousColumn, DisconnectedInput, UnknownColumn, UnknownRelation, UnparsableCondition

MOST_RELATIONS = 64


def bound_in(relation: int, column: int) -> str:
    return f"_t{relation}_{column}"


@dataclass(frozen=True)
class Relations:
    """The names of the relations and of their columns, looked up as Spark does."""

    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    exact: bool = False
    """Whether the case of a column's name matters."""

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(range(len(self.names)))

    def bound(self, source: int, index: int) -> str:
        return bound_in(source, index)

    def relation(self, name: str) -> int | None:
        found = [i for i, n in enumerate(self.names) if n == name]
        found = found or [i for i, n in enumerate(self.names) if n.lower() == name.lower()]
        return found[0] if found else None

    def column(self, relation: int, name: str) -> int | None:
        return found_in(self.columns[relation], name, self.exact, self.names[relation])

    def fold(self, name: str) -> str:
        return folded(name, self.exact)

    def resolve(self, parts: list[str]) -> tuple[int, int, int]:
        relation = self.relation(parts[0])
        holders = [i for i in self.sources if self.column(i, parts[0]) is not None]
        if relation is not None and len(parts) > 1:
            at = self.column(relation, parts[1])
            if at is None:
                raise UnknownColumn.in_condition(parts[1], self.names[relation], self.columns[relation])
            return relation, at, 1
        if len(holders) > 1:
            raise AmbiguousColumn.among(parts[0], [self.names[i] for i in holders])
        if holders:
            at = self.column(holders[0], parts[0])
            assert at is not None
            return holders[0], at, 0
        if len(parts) > 1:
            raise UnknownRelation.in_condition(parts[0], self.names)
        raise UnknownColumn.in_none(parts[0], [c for columns in self.columns for c in columns])


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL over the columns of one relation."""

    relation: int
    sql: str


@dataclass(frozen=True, slots=True)
class MultiEqui:
    """`first = second`, or `<=>` when null_safe, of two relations."""

    first: Expression
    second: Expression
    null_safe: bool
    text: str


@dataclass(frozen=True, slots=True)
class Clause:
    """Any other predicate, with the relations it reads and one expression of each that it compares."""

    sql: str
    text: str
    relations: frozenset[int]
    compared: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class MultiCondition:
    text: str
    equalities: tuple[MultiEqui, ...]
    clauses: tuple[Clause, ...]
    using: tuple[str, ...] = ()
    """The column names of `on`, when it was a list of names: each appears once in the result."""


@dataclass(frozen=True)
class Attribute:
    """Expressions of several relations that are equal in every result; `columns` holds the one to route by."""

    name: str
    columns: dict[int, str]
    strict: bool = True
    """Whether NULL matches nothing; else NULL equals NULL."""
    shared: bool = True
    """Whether an equality made it; else an inequality merely reads it."""

    @property
    def relations(self) -> frozenset[int]:
        return frozenset(self.columns)


@dataclass(frozen=True)
class Query:
    """What a multi-way join asks for, with every key a column of one type for all its relations."""

    names: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    clauses: tuple[Clause, ...] = ()
    text: str = ""

    def of(self, relation: int) -> tuple[int, ...]:
        """The attributes of a relation."""
        return tuple(a for a, attribute in enumerate(self.attributes) if relation in attribute.columns)

    @property
    def relations(self) -> range:
        return range(len(self.names))

    def together(self, relation: int) -> set[tuple[int, ...]]:
        """Attributes that the relation shares with one other, where those are several."""
        shared = (tuple(a for a in self.of(relation) if a in self.of(i)) for i in self.relations if i != relation)
        return {several for several in shared if len(several) > 1}

    @property
    def cyclic(self) -> bool:
        """Whether the equalities close a cycle: ear by ear, an acyclic query can be taken apart (GYO reduction)."""
        edges = {i: {a for a in self.of(i) if self.attributes[a].shared} for i in self.relations}
        changed = True
        while changed:
            changed = False
            for i in list(edges):
                others = [e for j, e in edges.items() if j != i]
                shared = {a for a in edges[i] if any(a in e for e in others)}
                if not shared or any(shared <= e for e in others):
                    del edges[i]
                    changed = True
                    break
        return bool(edges)


def parse_multi(on: str | Sequence[str] | None, relations: Relations, cross: bool) -> MultiCondition:
    """`on` is a condition over the relations' names, or the name or names of columns that all of them have."""
    if on is None and cross:
        return MultiCondition("cross", (), ())
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
        raise UnparsableCondition.wrong_type(on)
    if not names or not all(n.strip() for n in names):
        raise UnparsableCondition.empty()
    bare = [n.strip().strip("`") for n in names]
    if not isinstance(on, str) or all(relations.column(i, bare[0]) is not None for i in relations.sources):
        return _using(bare, relations)
    equalities: list[MultiEqui] = []
    rest: list[Clause] = []
    for start, end in clauses(on):
        made = _as_equality(on, start, end, relations)
        if made is not None:
            equalities.append(made)
            continue
        part = bind_text(on, start, end, relations)
        touched = frozenset(i for i, used in part.columns.items() if used)
        compared = _compared(on[start:end], relations) if len(touched) > 1 else ()
        rest.append(Clause(part.sql, " ".join(on[start:end].split()), touched, compared))
    condition = MultiCondition(" ".join(on.split()), tuple(equalities), tuple(rest))
    if not cross:
        _connected(condition, relations)
    return condition


def _using(names: Sequence[str], relations: Relations) -> MultiCondition:
    made = []
    names = list({relations.fold(name): name for name in reversed(names)}.values())[::-1]
    for name in names:
        at = []
        for i in relations.sources:
            column = relations.column(i, name)
            if column is None:
                raise UnknownColumn.in_condition(name, relations.names[i], relations.columns[i])
            at.append(Expression(i, f"`{bound_in(i, column)}`"))
        for one, two in pairwise(at):
            text = f"{relations.names[one.relation]}.{name} = {relations.names[two.relation]}.{name}"
            made.append(MultiEqui(one, two, False, text))
    return MultiCondition(" AND ".join(e.text for e in made), tuple(made), (), tuple(names))


def _as_equality(text: str, start: int, end: int, relations: Relations) -> MultiEqui | None:
    found = equality(text, start, end)
    if found is None:
        return None
    sides = []
    for span in found.sides:
        part = bind_text(text, *span, relations)
        touched = [i for i, used in part.columns.items() if used]
        if len(touched) != 1:
            return None
        sides.append(Expression(touched[0], part.sql))
    if sides[0].relation == sides[1].relation:
        return None
    return MultiEqui(sides[0], sides[1], found.null_safe, text[start:end].strip())


def _compared(text: str, relations: Relations) -> tuple[Expression, ...]:
    """The first column of every relation in the clause: what its rows could be hashed by."""
    found: dict[int, Expression] = {}
    columns = column_references(sqlglot.parse_one(text, dialect="spark"))
    for column in sorted(columns, key=lambda c: int(c.parts[0].meta["start"])):
        relation, index, _ = relations.resolve([p.name for p in column.parts])
        found.setdefault(relation, Expression(relation, f"`{bound_in(relation, index)}`"))
    return tuple(found[i] for i in sorted(found))


def _connected(condition: MultiCondition, relations: Relations) -> None:
    """Every relation is joined with the others, by whatever clause."""
    links = [frozenset((e.first.relation, e.second.relation)) for e in condition.equalities]
    links += [c.relations for c in condition.clauses]
    group = list(relations.sources)
    for link in links:
        joined = {group[i] for i in link}
        group = [min(joined) if g in joined else g for g in group]
    main = max(group, key=lambda g: (group.count(g), -g))
    lost = [relations.names[i] for i in relations.sources if group[i] != main]
    if lost:
        raise DisconnectedInput.of(lost, condition.text)
