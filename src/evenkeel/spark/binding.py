"""A join bound to two DataFrames: columns renamed by position, keys brought to one type, the result's shape.

Everything that can be wrong with a request is found here or while parsing, before any Spark job starts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.conditions import Condition, Equi, Names, Theta, bound, parse_on
from evenkeel.errors import AmbiguousColumn, IncomparableTypes, UnparsableCondition, UnusableBand
from evenkeel.spark.inputs import case_matters, contains_type, quoted
from evenkeel.spark.positions import spans_of
from evenkeel.types import SIDES, How, Side, kept

UNORDERED = (T.MapType, T.VariantType, T.CalendarIntervalType)
PLAIN = (
    T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_FAMILIES: tuple[tuple[type[T.DataType], ...], ...] = (
    (T.NumericType,),
    (T.DateType, T.TimestampType, T.TimestampNTZType),
    (T.StringType,),
)
"""Types that compare with one another; any other pair must be of one type."""
_KEY_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32}
_OF_SIDE: dict[Side, re.Pattern[str]] = {s: re.compile(rf"\b_{s[0]}\d+\b") for s in SIDES}
"""What names a column of the side; in a literal too, where it only keeps a clause from being known as one-sided."""


@dataclass(frozen=True, eq=False)
class BoundJoin:
    left: DataFrame
    right: DataFrame
    condition: Condition
    how: How
    key_types: tuple[T.DataType, ...]
    names: Names
    suffixes: tuple[str, str]

    def side(self, side: Side) -> DataFrame:
        return self.left if side == "left" else self.right

    def columns(self, side: Side) -> list[str]:
        return [bound(side, i) for i in range(len(self.names.of(side)))]

    def key_columns(self, side: Side) -> list[str]:
        return [e.sql(side) for e in self.condition.equi]

    @property
    def key_bits(self) -> int | None:
        """How many bits hold any key by its type, if it is one whole number, smaller than a BIGINT."""
        return _KEY_BITS.get(type(self.key_types[0])) if len(self.key_types) == 1 else None

    def project(self, joined: DataFrame, computed: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
        """The result as the user named it: shared names keep the left column and suffix the right one.

        `computed` is SQL of columns that `joined` does not have, by their name.
        """
        shown = result_columns(self.names, self.condition, self.how, self.suffixes)
        if any("${" in name for name, _ in shown):  # Spark's parser would put values in for what looks like a variable
            out = joined.selectExpr(*(computed.get(sql, sql) for _, sql in shown)).toDF(*(name for name, _ in shown))
        else:
            out = joined.selectExpr(*(f"{computed.get(sql, sql)} AS {quoted(name)}" for name, sql in shown))
        for name, sql in shown:
            if sql in computed and (metadata := self.side("left" if sql[1] == "l" else "right").schema[sql].metadata):
                out = out.withMetadata(name, metadata)
        return out


def bind(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | None,
    how: How,
    suffixes: tuple[str, str],
) -> BoundJoin:
    names = Names(tuple(left.columns), tuple(right.columns), case_matters(left.sparkSession))
    condition = parse_on(on, how, names)
    result_columns(names, condition, how, suffixes)
    frames: dict[Side, DataFrame] = {
        "left": left.toDF(*(bound("left", i) for i in range(len(names.left)))),
        "right": right.toDF(*(bound("right", i) for i in range(len(names.right)))),
    }
    _analyze(frames["left"], frames["right"], condition)
    kinds = [common_type(frames["left"], frames["right"], e) for e in condition.equi]
    equi, keys, residual = [], [], list(condition.residual)
    for i, (e, kind) in enumerate(zip(condition.equi, kinds, strict=True)):
        if is_collated(kind) or any(is_padded(frames[s], e.sql(s)) for s in SIDES):
            # Equal under a collation, or after padding, is not equal in hash: compared, never routed by.
            sign = "<=>" if e.null_safe else "="
            residual.append(Theta(f"({e.left}) {sign} ({e.right})", e.text, equality=True))
            continue
        sql = {}
        for side in SIDES:
            sql[side] = e.sql(side).strip("`")
            if sql[side] not in frames[side].columns or frames[side].schema[sql[side]].dataType != kind:
                name = f"_{side[0]}k{i}"
                key = F.expr(e.sql(side)).cast(kind)
                guard = None if e.null_safe else own_clauses(condition, side)
                frames[side] = frames[side].withColumn(name, key if guard is None else F.when(guard, key))
                sql[side] = name
        equi.append(Equi(sql["left"], sql["right"], e.null_safe, e.text))
        keys.append(kind)
    spans = spans_of(frames, condition.bands)
    condition = replace(condition, equi=tuple(equi), residual=tuple(residual), spans=spans)
    return BoundJoin(frames["left"], frames["right"], condition, how, tuple(keys), names, suffixes)


def guarded(join: BoundJoin) -> BoundJoin:
    """Rows that fail a clause about their side alone are left out, as in Spark, unless the result shows them anyway."""
    sides = {s: join.side(s) for s in SIDES}
    for side in SIDES:
        own = own_clauses(join.condition, side)
        if own is not None and side not in kept(join.how):
            sides[side] = sides[side].filter(own)
    return replace(join, left=sides["left"], right=sides["right"])


def own_clauses(condition: Condition, side: Side) -> Column | None:
    """What a row of the side must fulfil to match at all.

    A key is computed for no other row: `l.s RLIKE '^[0-9]+$' AND cast(l.s AS int) = r.k` would fail otherwise.
    """
    clauses = [f"({c.sql})" for c in condition.residual if about(c) == side]
    return F.expr(" AND ".join(clauses)) if clauses else None


def about(clause: Theta) -> Side | None:
    """The one side that a clause is about, if it is."""
    named = [s for s in SIDES if _OF_SIDE[s].search(clause.sql)]
    return named[0] if len(named) == 1 else None


def is_padded(df: DataFrame, sql: str) -> bool:
    """Whether this is a CHAR(n) column, which Spark pads when it compares it with a longer one."""
    name = sql.strip("`")
    return name in df.columns and "char(" in str(df.schema[name].metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))


def is_collated(kind: T.DataType) -> bool:
    """Whether values of the type may be equal without being the same, as 'a' and 'A' under UTF8_LCASE."""
    if isinstance(kind, T.StringType):
        return bool(kind.collation != T.StringType().collation)
    if isinstance(kind, T.StructType):
        return any(is_collated(f.dataType) for f in kind)
    return isinstance(kind, T.ArrayType) and is_collated(kind.elementType)


def _analyze(left: DataFrame, right: DataFrame, condition: Condition) -> None:
    """Let Spark's analyzer see the condition, but for what is plain to see; it starts no job."""
    checked = [e for e in condition.equi if not plainly_comparable(left, right, e)]
    sql = [f"({e.left}) {'<=>' if e.null_safe else '='} ({e.right})" for e in checked]
    sql += [f"({t.sql})" for t in condition.residual]
    for text, shown in zip(sql, [e.text for e in checked] + [t.text for t in condition.residual], strict=True):
        try:
            check_boolean(left.crossJoin(right), text, shown)
        except UnparsableCondition:
            for e in condition.equi:
                if e.text == shown:
                    check_comparable(left, right, e)
            raise


def check_boolean(df: DataFrame, sql: str, shown: str) -> None:
    """Raise unless Spark takes the expression for a predicate over the columns of `df`."""
    try:
        kind = df.select(F.expr(sql).alias("c")).schema["c"].dataType
        if isinstance(kind, T.BooleanType):  # a join accepts less than a projection: nothing that is up to chance
            df.join(df.sparkSession.range(0).toDF("_none"), F.expr(sql), "left_semi").schema  # noqa: B018
    except AnalysisException as error:
        if "mix year-month and day-time" in str(error):
            raise UnusableBand.mixed_interval(shown) from None
        message = next((t for t in str(error).split(" SQLSTATE")[0].splitlines() if t.strip()), "no reason given")
        raise UnparsableCondition.refused_by_spark(shown, message) from None
    if not isinstance(kind, T.BooleanType):
        raise UnparsableCondition.refused_by_spark(shown, f"it is a {kind.simpleString()}, not true or false")


def plainly_comparable(left: DataFrame, right: DataFrame, e: Equi) -> bool:
    """Whether the equality is of two columns of one type that certainly has an order."""
    kind = _column_type(left, e.left)
    return isinstance(kind, PLAIN) and kind == _column_type(right, e.right)


def _column_type(df: DataFrame, sql: str) -> T.DataType | None:
    name = sql.strip("`")
    return df.schema[name].dataType if name in df.columns else None


def _type_of(df: DataFrame, sql: str) -> T.DataType:
    return _column_type(df, sql) or df.select(F.expr(sql).alias("k")).schema["k"].dataType


def check_comparable(left: DataFrame, right: DataFrame, e: Equi) -> None:
    """Say which types do not compare, if that is what is wrong with an equality."""
    with contextlib.suppress(AnalysisException):
        _comparable(e, _type_of(left, e.left), _type_of(right, e.right))


def _comparable(e: Equi, left: T.DataType, right: T.DataType) -> None:
    for kind in (left, right):
        if contains_type(kind, UNORDERED):
            raise IncomparableTypes.unorderable(e.text, kind.simpleString())
    if left == right or isinstance(left, T.NullType) or isinstance(right, T.NullType):
        return
    for family in _FAMILIES:
        if isinstance(left, family) and isinstance(right, family):
            return
    if type(left) is type(right):
        return  # nested types that differ in detail: Spark finds the common one
    raise IncomparableTypes.in_key(e.text, left.simpleString(), right.simpleString())


def common_type(left: DataFrame, right: DataFrame, e: Equi) -> T.DataType:
    """The one type that both sides of an equality are compared in, as Spark would choose it."""
    kinds = _type_of(left, e.left), _type_of(right, e.right)
    _comparable(e, *kinds)
    if kinds[0] == kinds[1]:
        return kinds[0]
    # Spark compares structs field by field, whatever the fields are called, but puts only like ones into one column.
    compared = [
        f"cast({sql} AS {_by_place(kind).simpleString()})" if isinstance(kind, T.StructType) else sql
        for sql, kind in zip((e.left, e.right), kinds, strict=True)
    ]
    both = left.crossJoin(right).select(F.expr(f"coalesce({compared[0]}, {compared[1]})").alias("k"))
    return both.schema["k"].dataType


def _by_place(kind: T.DataType) -> T.DataType:
    if not isinstance(kind, T.StructType):
        return kind
    return T.StructType([T.StructField(f"_{i}", _by_place(f.dataType)) for i, f in enumerate(kind)])


def result_columns(names: Names, condition: Condition, how: How, suffixes: tuple[str, str]) -> list[tuple[str, str]]:
    """Names and SQL of the result's columns, over the bound ones."""
    at: dict[Side, list[int]] = {s: list(range(len(names.of(s)))) for s in SIDES}
    for side in SIDES:
        seen: set[str] = set()
        for name in names.of(side):
            if name in seen:
                raise AmbiguousColumn.repeated(name, side)
            seen.add(name)
    out: list[tuple[str, str]] = []
    keys = list(zip(condition.columns["left"], condition.columns["right"], strict=True)) if condition.using else []
    for i, j in keys:
        left, right = bound("left", i), bound("right", j)
        out.append((names.left[i], {"right": right, "full": f"coalesce({left}, {right})"}.get(how, left)))
        at["left"].remove(i)
        at["right"].remove(j)
    if how in ("left_semi", "left_anti"):
        at["right"] = []
    taken = {names.fold(n) for n in (names.left[i] for i in at["left"])} | {names.fold(n) for n, _ in out}
    shared = taken & {names.fold(names.right[j]) for j in at["right"]}
    keyed = {n for n, _ in out}
    for side, suffix in zip(SIDES, suffixes, strict=True):
        for i in at[side]:
            name = names.of(side)[i]
            clash = names.fold(name) in shared and name not in keyed
            clash = clash or (side == "right" and names.fold(name) in {names.fold(k) for k in keyed})
            out.append((name + suffix if clash else name, bound(side, i)))
    used: set[str] = set()
    for name, _ in out:
        if names.fold(name) in used:
            for side in SIDES:
                if [names.fold(n) for n in names.of(side)].count(names.fold(name)) > 1:  # no suffix helps
                    raise AmbiguousColumn.repeated(name, side)
            raise AmbiguousColumn.in_result(name, suffixes)
        used.add(names.fold(name))
    return out
