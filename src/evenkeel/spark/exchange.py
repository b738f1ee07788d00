"""A layout becomes partitions: rows are looked up in the routing table, copied, and shuffled once.

    input -> (key hash, row number) -> broadcast join with the table -> region -> repartitionById

Invariant: where a row goes is a function of the row and of the layout alone, so a retried task sends every row
where its first attempt did. Rows of one key are told apart by their position where the input repeats its order,
else by a hash of their content and of the partition they are in; values that may differ in their last bits from
one attempt to the next (floating-point results of a shuffle) stay out of that hash.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.schemes import Layout, RouteExpr
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.inputs import contains_type
from evenkeel.types import Side

_SHAKY = (
    T.FloatType, T.DoubleType, T.ArrayType, T.MapType, T.VariantType, T.CalendarIntervalType, T.UserDefinedType,
)  # fmt: skip
"""Values that a retried task may compute a little differently, such as sums and collected lists; or not hash."""
HASH_SHIFT = 7
"""The hash bits above the region are not those that pick the region of a tail key."""


@dataclass(frozen=True, eq=False)
class RoutedInput:
    """An input with a `_?_region` column (and `_?_copies` where rows are copied), partitioned by region."""

    df: DataFrame
    side: Side

    @property
    def region(self) -> str:
        return f"_{self.side[0]}_region"

    @property
    def copies(self) -> str:
        return f"_{self.side[0]}_copies"


def key_sql(join: BoundJoin, side: Side) -> str:
    """The 64-bit hash of the join key; NULL where a NULL in the key means that nothing can match."""
    if not join.condition.equi:
        return "0L"
    hashed = f"xxhash64({', '.join(join.key_columns(side))})"
    strict = [e.sql(side) for e in join.condition.equi if not e.null_safe]
    if not strict:
        return hashed
    return f"CASE WHEN {' AND '.join(f'{c} IS NOT NULL' for c in strict)} THEN {hashed} END"


def with_routing(join: BoundJoin, side: Side, stable: bool, keep_nulls: bool) -> tuple[DataFrame, str]:
    """The input with its key hash in `_key`, and the SQL of the number that tells rows of one key apart."""
    df = join.side(side)
    strict = [e.sql(side) for e in join.condition.equi if not e.null_safe]
    if strict and not keep_nulls:
        df = df.filter(" AND ".join(f"{c} IS NOT NULL" for c in strict))
    key = F.expr(key_sql(join, side)).alias("_key")
    if stable:
        return df.select("*", key, F.monotonically_increasing_id().alias("_row")), "_row"
    steady = [f.name for f in df.schema if f.name in join.columns(side) and not contains_type(f.dataType, _SHAKY)]
    # Added, not hashed: equal rows of neighbouring partitions take neighbouring places. The mask leaves room to add.
    content = f"(xxhash64({', '.join(steady)}) & {2**62 - 1}L)" if steady else "0L"
    return df.select("*", key, F.spark_partition_id().alias("_row")), f"({content} + _row)"


def route(join: BoundJoin, side: Side, layout: Layout, stable: bool, keep_nulls: bool = True) -> RoutedInput:
    """The input's rows, copied to their regions, not yet shuffled."""
    df, row = with_routing(join, side, stable, keep_nulls)
    expr = layout.route_expr(side)
    out = RoutedInput(df, side)
    kept = [c for c in df.columns if c not in ("_key", "_row")]
    copies = str(layout.workers) if layout.replicates(side) else "1"
    if expr.table is not None:
        df = df.join(F.broadcast(_table(df, expr)), F.expr("_key = _h"), "left")
        copies = "coalesce(_copies, 1)"
    p = layout.workers
    hit = f"_regions[cast(pmod({row}, _slots) as int)]"
    region = expr.region.format(key="_key", row=row, hit=hit)
    bits = f"{p} * cast(pmod(shiftright(coalesce(_key, {row}), {HASH_SHIFT}), {(2**31 - 1) // p}L) as int)"
    if region.startswith("explode"):  # a generator stands alone in its projection
        df = df.select("*", F.expr(region).alias("_region"))
        region = "_region"
    routed = df.select(*kept, F.expr(copies).alias(out.copies), F.expr(f"{region} + {bits}").alias(out.region))
    return RoutedInput(routed, side)


def exchange(routed: RoutedInput, workers: int, with_copies: bool) -> RoutedInput:
    """Every region one partition. The only shuffle of the input."""
    df = routed.df if with_copies else routed.df.drop(routed.copies)
    return RoutedInput(df.repartitionById(workers, F.col(routed.region)), routed.side)


def region_of(routed: RoutedInput, workers: int) -> str:
    """The number of the region, without the hash bits above it."""
    return f"pmod({routed.region}, {workers})"


def replicated_keys(df: DataFrame, layout: Layout, side: Side) -> DataFrame | None:
    """The hashes of the keys whose rows are copied on this side; None when that is all of them."""
    table = layout.route_expr(side).table
    if table is None:
        return None
    copied = table.filter(pc.greater(table["copies"], 1))
    hashes = pa.table({"_h": copied["h"].combine_chunks().unique() if len(copied) else pa.array([], pa.int64())})
    return df.sparkSession.createDataFrame(hashes)


def _table(df: DataFrame, expr: RouteExpr) -> DataFrame:
    assert expr.table is not None
    names = ["_h", "_slots", "_regions", "_copies"]
    return df.sparkSession.createDataFrame(expr.table.rename_columns(names))
