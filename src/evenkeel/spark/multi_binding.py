"""A multi-way join bound to its DataFrames: columns renamed by position, keys brought to one type, filters applied.

Everything that can be wrong with a request is found here or while parsing, before any Spark job starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.conditions import (
    MOST_RELATIONS,
    Attribute,
    Clause,
    Equi,
    MultiCondition,
    MultiEqui,
    Query,
    Relations,
    bound_in,
    parse_multi,
)
from evenkeel.errors import AmbiguousColumn, DuplicateInput, UnparsableCondition, UnreadableInput, WrongInputs
from evenkeel.spark.binding import (
    UNORDERED,
    check_boolean,
    check_comparable,
    common_type,
    is_collated,
    is_padded,
    plainly_comparable,
)
from evenkeel.spark.exchange import SHAKY
from evenkeel.spark.inputs import case_matters, contains_type

Node = tuple[int, str, str]
"""An expression of a relation, compared in a type: (relation, SQL, type)."""


@dataclass(frozen=True, eq=False)
class BoundQuery:
    frames: tuple[DataFrame, ...]
    query: Query
    relations: Relations
    using: tuple[str, ...] = ()

    def columns(self, relation: int) -> list[str]:
        return [bound_in(relation, j) for j in range(len(self.relations.columns[relation]))]

    def project(self, joined: DataFrame) -> DataFrame:
        """The result as the user named it."""
        shown = result_columns(self.relations, self.using)
        return joined.selectExpr(*(column for _, column in shown)).toDF(*(name for name, _ in shown))


def bind_multi(inputs: dict[str, DataFrame], on: str | Sequence[str] | None, cross: bool) -> BoundQuery:
    relations = _named(inputs)
    condition = parse_multi(on, relations, cross)
    result_columns(relations, condition.using)
    frames = [
        df.toDF(*(bound_in(i, j) for j in range(len(relations.columns[i])))) for i, df in enumerate(inputs.values())
    ]
    equalities, clauses = _analyzed(frames, condition)
    frames = [_filtered(df, i, clauses) for i, df in enumerate(frames)]
    frames, attributes = _attributes(frames, equalities, relations)
    clauses = [c for c in clauses if len(c.relations) > 1]
    attributes += _compared(frames, attributes, clauses, relations)
    query = Query(relations.names, tuple(attributes), tuple(clauses), condition.text)
    return BoundQuery(tuple(frames), query, relations, condition.using)


def _named(inputs: dict[str, DataFrame]) -> Relations:
    if not isinstance(inputs, dict) or not all(isinstance(n, str) for n in inputs):
        raise WrongInputs.not_named(inputs)
    if len(inputs) < 2:
        raise WrongInputs.too_few(len(inputs))
    if len(inputs) > MOST_RELATIONS:
        raise WrongInputs.too_many(len(inputs), MOST_RELATIONS)
    seen: dict[str, str] = {}
    for name, df in inputs.items():
        if name.lower() in seen:
            raise DuplicateInput.of(seen[name.lower()], name)
        seen[name.lower()] = name
        if not isinstance(df, DataFrame):
            raise UnreadableInput.not_a_frame(name, df)
        if df.isStreaming:
            raise UnreadableInput.streaming(name)
    columns = tuple(tuple(df.columns) for df in inputs.values())
    return Relations(tuple(inputs), columns, case_matters(next(iter(inputs.values())).sparkSession))


def result_columns(relations: Relations, using: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names of the result's columns, and what they are bound to.

    Names that several inputs have are written input_column; a key that `on` merely named appears once.
    """
    once = {relations.fold(n) for n in using}
    held: dict[str, int] = {}
    for i, columns in enumerate(relations.columns):
        folds = [relations.fold(c) for c in columns]
        for c in columns:
            if folds.count(relations.fold(c)) > 1:
                raise AmbiguousColumn.repeated(c, relations.names[i])
            held[relations.fold(c)] = held.get(relations.fold(c), 0) + 1
    out: list[tuple[str, str]] = []
    for name in using:
        at = relations.column(0, name)
        assert at is not None
        out.append((relations.columns[0][at], bound_in(0, at)))
    for i, columns in enumerate(relations.columns):
        for j, c in enumerate(columns):
            if relations.fold(c) not in once:
                shown = f"{relations.names[i]}_{c}" if held[relations.fold(c)] > 1 else c
                out.append((shown, bound_in(i, j)))
    taken: set[str] = set()
    for name, _ in out:
        if relations.fold(name) in taken:
            raise AmbiguousColumn.in_inputs(name)
        taken.add(relations.fold(name))
    return out


def _analyzed(
    frames: list[DataFrame], condition: MultiCondition
) -> tuple[list[tuple[MultiEqui, T.DataType]], list[Clause]]:
    """Equalities with the type that they compare in, and all other clauses; Spark's analyzer has seen them all."""
    typed: list[tuple[MultiEqui, T.DataType]] = []
    clauses = list(condition.clauses)
    for e in condition.equalities:
        left, right = frames[e.first.relation], frames[e.second.relation]
        sign = "<=>" if e.null_safe else "="
        sql = f"({e.first.sql}) {sign} ({e.second.sql})"
        pair = Equi(e.first.sql, e.second.sql, e.null_safe, e.text)
        if not plainly_comparable(left, right, pair):
            try:
                check_boolean(left.crossJoin(right), sql, e.text)
            except UnparsableCondition:
                check_comparable(left, right, pair)
                raise
        kind = common_type(left, right, pair)
        if is_collated(kind) or is_padded(left, e.first.sql) or is_padded(right, e.second.sql):
            # Equal under a collation, or after padding, is not equal in hash: compared, never routed by.
            clauses.append(Clause(sql, e.text, frozenset((e.first.relation, e.second.relation))))
        else:
            typed.append((e, kind))
    for c in condition.clauses:
        every = reduce(lambda a, b: a.crossJoin(b), [frames[i] for i in sorted(c.relations) or [0]])
        check_boolean(every, c.sql, c.text)
    return typed, clauses


def _filtered(df: DataFrame, relation: int, clauses: list[Clause]) -> DataFrame:
    """Clauses about one relation hold before it is shuffled; those about none are the first one's."""
    for c in clauses:
        if c.relations == {relation} or (not c.relations and relation == 0):
            df = df.filter(c.sql)
    return df


def _attributes(
    frames: list[DataFrame], equalities: list[tuple[MultiEqui, T.DataType]], relations: Relations
) -> tuple[list[DataFrame], list[Attribute]]:
    """Classes of expressions that equalities connect in one type, and the frames with a column for each."""
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        parent.setdefault(node, node)
        while parent[node] != node:
            node = parent[node]
        return node

    kinds: dict[Node, T.DataType] = {}
    ends: list[tuple[Node, MultiEqui]] = []
    for e, kind in equalities:
        first, second = ((x.relation, _plain(x.sql), kind.simpleString()) for x in (e.first, e.second))
        parent[root(second)] = root(first)
        kinds |= {first: kind, second: kind}
        ends.append((first, e))
    classes: dict[Node, list[Node]] = {}
    for node in kinds:
        classes.setdefault(root(node), []).append(node)
    strict = {root(node) for node, e in ends if not e.null_safe}
    out = []
    for number, (top, nodes) in enumerate(classes.items()):
        columns: dict[int, str] = {}
        texts = [e.text for node, e in ends if root(node) == top]
        for relation, sql, _ in nodes:
            df, column = _with_column(frames[relation], relation, sql, kinds[top], number)
            if top in strict:
                df = df.filter(f"{column} IS NOT NULL")
            if relation in columns:  # two expressions of one relation that must be equal
                df = df.filter(f"{columns[relation]} <=> {column}")
            else:
                columns[relation] = column
            frames[relation] = df
        name = " = ".join(_shown(i, columns[i], relations, texts) for i in sorted(columns))
        out.append(Attribute(name, columns, top in strict))
    return frames, out


def _plain(sql: str) -> str:
    """A column's name without its quotes; any other expression as it is."""
    name = sql.strip()
    while name[:1] == "(" and name[-1:] == ")" and name.count("(") == 1:
        name = name[1:-1].strip()
    return name[1:-1] if name[:1] == name[-1:] == "`" and "`" not in name[1:-1] else sql


def _with_column(df: DataFrame, relation: int, sql: str, kind: T.DataType, number: int) -> tuple[DataFrame, str]:
    if sql in df.columns and df.schema[sql].dataType == kind:
        return df, sql
    name = f"_t{relation}_k{number}_{len(df.columns)}"
    return df.select("*", F.expr(sql).cast(kind).alias(name)), name


def _shown(relation: int, column: str, relations: Relations, texts: list[str]) -> str:
    """A key as people wrote it: relation.column, or the relation's side of an equality."""
    name = relations.names[relation]
    for j, c in enumerate(relations.columns[relation]):
        if bound_in(relation, j) == column:
            return f"{name}.{c}"
    sides = [s.strip() for text in texts for s in text.replace("<=>", "=").split("=")]
    mine = re.compile(rf"(?<!\w)`?{re.escape(name)}`?\.", re.IGNORECASE)
    return next((s for s in sides if mine.search(s)), f"{name}.(…)")


def _compared(
    frames: list[DataFrame], attributes: list[Attribute], clauses: list[Clause], relations: Relations
) -> list[Attribute]:
    """What rows of a relation without equality can be hashed by: a column that an inequality reads."""
    keyed = {i for a in attributes for i in a.columns}
    found: dict[int, Attribute] = {}
    for c in clauses:
        for x in c.compared:
            column = _plain(x.sql)
            kind = frames[x.relation].schema[column].dataType
            if x.relation in keyed or x.relation in found or contains_type(kind, (*SHAKY, *UNORDERED)):
                continue
            name = _shown(x.relation, column, relations, [])
            found[x.relation] = Attribute(name, {x.relation: column}, strict=False, shared=False)
    return list(found.values())
