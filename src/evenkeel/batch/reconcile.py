"""Match bits for copied rows: a preserved row that was sent to several regions is unmatched when all copies are.

Whether a row matches is a function of the columns that the condition reads. So the bits need no row ids: the
distinct values of those columns that matched somewhere are collected, and the copied rows are compared with them.
Only rows of copied keys take part. Cost: one more pass over the inputs, filtered to those keys.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.conditions import bound
from evenkeel.plan import TwoWay
from evenkeel.spark.arrow_join import arrow_pairs
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import RoutedInput, copied_rows, exchange, is_copied, route
from evenkeel.spark.inputs import contains_type, quoted
from evenkeel.types import SIDES, Side, other

_ALIKE = (T.FloatType, T.DoubleType, T.StringType, T.MapType, T.VariantType, T.CalendarIntervalType)
"""Types of values that compare as equal but are not the same, or that do not compare."""


def unmatched_copies(join: BoundJoin, plan: TwoWay, side: Side) -> DataFrame:
    """The copied rows of a preserved side that the regions left out: unmatched ones, or for a semi-join matched."""
    assert plan.chosen is not None and plan.local is not None
    layout, stable = plan.chosen.layout, plan.facts.stable_order[side]
    mine = copied_rows(join, side, layout, plan.local, stable)
    theirs = _partners(join, other(side), plan)
    if not join.condition.residual:
        matched, on = _key_set(join, side, theirs)
        if layout.route_expr(side).table is not None:
            matched = F.broadcast(matched)  # as few as the hot keys, whose rows would all meet in one task
    else:
        matched, on = _matched_values(join, plan, side, mine, theirs)
    how = "left_semi" if join.how == "left_semi" else "left_anti"
    return mine.join(matched, F.expr(on), how).selectExpr(*join.columns(side))


def _partners(join: BoundJoin, side: Side, plan: TwoWay) -> DataFrame:
    """The rows that copied rows of the other side may match."""
    assert plan.chosen is not None
    table = plan.chosen.layout.route_expr(other(side)).table
    df = join.side(side)
    return df if table is None else df.filter(is_copied(join, side, table))


def _key_set(join: BoundJoin, side: Side, theirs: DataFrame) -> tuple[DataFrame, str]:
    """Without a residual condition a row matches when its key is there at all."""
    keys = [f"{e.sql(other(side))} AS _m{i}" for i, e in enumerate(join.condition.equi)]
    on = " AND ".join(
        f"{e.sql(side)} {'<=>' if e.null_safe else '='} _m{i}" for i, e in enumerate(join.condition.equi)
    )
    if not keys:
        return theirs.selectExpr("1 AS _m").limit(1), "_m = 1"
    return theirs.selectExpr(*keys).distinct(), on


def _matched_values(
    join: BoundJoin, plan: TwoWay, side: Side, mine: DataFrame, theirs: DataFrame
) -> tuple[DataFrame, str]:
    """The values of the condition's columns that found a partner in some region."""
    assert plan.chosen is not None and plan.local is not None
    part = {side: mine, other(side): theirs}
    small = BoundJoin(
        part["left"], part["right"], join.condition, join.how, join.key_types, join.names, join.suffixes
    )
    read = [bound(side, i) for i in join.condition.columns[side]]
    if plan.chosen.scheme == "broadcast":
        sql = plan.local.on(join.condition).replace("(_l_region = _r_region)", "(true)")
        pairs = theirs.join(F.broadcast(mine), F.expr(sql), "inner")
    else:
        layout, local = plan.chosen.layout, plan.local
        sent: dict[Side, RoutedInput] = {}
        for s in SIDES:
            routed = route(small, s, layout, False, keep_nulls=False, hash_bits=local.hash_bits)
            sent[s] = exchange(routed, layout, local, small, plan.tasks)
        if local.operator == "arrow":
            pairs = arrow_pairs(small, sent, layout.workers).filter(local.on(join.condition))
        else:
            right = sent[other(side)].df.hint(local.operator)
            pairs = sent[side].df.join(right, F.expr(local.on(join.condition)), "left_semi")
    compared = [_told_apart(c, mine.schema[c].dataType) for c in read]
    values = [f"{sql} AS _m{i}" for i, sql in enumerate(compared)]
    on = " AND ".join(f"{sql} <=> _m{i}" for i, sql in enumerate(compared))
    return pairs.selectExpr(*values).distinct(), on


def _told_apart(sql: str, kind: T.DataType, depth: int = 0) -> str:
    """The value in a form that can be compared, and is equal only where nothing can tell two values apart.

    Maps, variants and calendar intervals cannot be compared, what is in them can; -0.0 equals 0.0, and 'a' may equal
    'A', yet not to every function.
    """
    if not contains_type(kind, _ALIKE):
        return sql
    if isinstance(kind, T.MapType):
        entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
        return _told_apart(f"map_entries({sql})", T.ArrayType(entry), depth)
    if isinstance(kind, T.ArrayType):
        return f"transform({sql}, _e{depth} -> {_told_apart(f'_e{depth}', kind.elementType, depth + 1)})"
    if isinstance(kind, T.StructType):
        fields = ", ".join(_told_apart(f"{sql}.{quoted(f.name)}", f.dataType, depth) for f in kind)
        return f"IF({sql} IS NULL, NULL, struct({fields}))"
    if isinstance(kind, T.VariantType):
        return f"struct(schema_of_variant({sql}), cast({sql} AS string))"
    return f"cast({sql} AS {'binary' if isinstance(kind, T.StringType) else 'string'})"
