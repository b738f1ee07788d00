"""A layout becomes partitions: rows are looked up in the routing table, copied, and shuffled once.

    input -> (key hash, row number) -> broadcast join with the table -> region -> repartitionById

Invariant: where a row goes is a function of the row and of the layout alone, so a retried task sends every row
where its first attempt did. Rows of one key are told apart by their position where the input repeats its order,
else by a hash of their content and of the partition they are in; values that may differ in their last bits from
one attempt to the next (floating-point results of a shuffle) stay out of that hash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel import dealing
from evenkeel.local import LocalJoin
from evenkeel.local.base import NUMBER_BITS, REGION, Packing, long_sql
from evenkeel.schemes import Bounds, Layout, RouteExpr
from evenkeel.schemes.ranges import TIE_SQL
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.inputs import contains_type, quoted
from evenkeel.types import Side

SHAKY = (
    T.FloatType, T.DoubleType, T.ArrayType, T.MapType, T.VariantType, T.CalendarIntervalType, T.UserDefinedType,
)  # fmt: skip
"""Values that a retried task may compute a little differently, such as sums and collected lists; or not hash."""
LEVELS_AT_ONCE = 3
"""Levels of the search tree that one projection descends: eight ways, seven comparisons in its code."""


@dataclass(frozen=True, eq=False)
class RoutedInput:
    """An input with a `_?_region` column (and `_?_copies` where rows are copied), partitioned by region."""

    df: DataFrame
    side: Side
    packing: Packing | None = None
    """How the region column holds the key as well, if it does."""

    @property
    def number(self) -> str:
        """The SQL of the number that rows are shuffled by; modulo the number of regions it is the region."""
        return self.region if self.packing is None else self.packing.number(self.region)

    @property
    def region(self) -> str:
        return REGION[self.side]

    @property
    def copies(self) -> str:
        return f"_{self.side[0]}_copies"


def key_sql(join: BoundJoin, side: Side, matchable: bool = False) -> str:
    """The 64-bit hash of the join key; NULL where a NULL in the key means that nothing can match.

    Of rows that are all `matchable` it is never NULL, which Spark cannot find out by itself.
    """
    if not join.condition.equi:
        return "0L"
    hashed = f"xxhash64({', '.join(join.key_columns(side))})"
    strict = [e.sql(side) for e in join.condition.equi if not e.null_safe]
    if not strict or matchable:
        return hashed
    return f"CASE WHEN {' AND '.join(f'{c} IS NOT NULL' for c in strict)} THEN {hashed} END"


def matchable_sql(join: BoundJoin, side: Side) -> str:
    """Whether a row can match anything at all: no NULL in its key, nor in its position."""
    strict = [f"{e.sql(side)} IS NOT NULL" for e in join.condition.equi if not e.null_safe]
    return " AND ".join([*strict, *(f"({s.sql(side)}) IS NOT NULL" for s in join.condition.spans)]) or "true"


def with_routing(
    join: BoundJoin, side: Side, stable: bool, keep_nulls: bool, run: int = 0
) -> tuple[DataFrame, str]:
    """The input with its key hash in `_key`, and the SQL of the number that tells rows of one key apart."""
    df = join.side(side)
    if matchable_sql(join, side) != "true" and not keep_nulls:
        df = df.filter(matchable_sql(join, side))
    also = (f"{key_sql(join, side, not keep_nulls)} AS _key",)
    return numbered(df, join.columns(side), stable, also=also, run=run)


def numbered(
    df: DataFrame, columns: list[str], stable: bool, salt: str = "", also: tuple[str, ...] = (), run: int = 0
) -> tuple[DataFrame, str]:
    """The input with a column `_row`, and the SQL of a number that tells its rows apart, the same when run again.

    It deals rows to slots (`dealing.py`), in runs of 2 ** run neighbours where the input repeats its order. Equal rows
    of one that does not are told apart by their partition alone. `salt` is SQL that keeps the number apart from a hash
    of the same columns. `also` are columns to add in the same step.
    """
    if stable:
        return df.selectExpr("*", *also, "monotonically_increasing_id() AS _row"), dealing.number_sql("_row", run)
    steady = [quoted(f.name) for f in df.schema if f.name in columns and not contains_type(f.dataType, SHAKY)]
    # Added, not hashed: equal rows of partitions are dealt one after the other. The mask leaves room to add.
    content = f"(xxhash64({', '.join([salt] * bool(salt) + steady)}) & {2**61 - 1}L)" if steady else "0L"
    return df.selectExpr("*", *also, "spark_partition_id() AS _row"), f"({content} + _row * {dealing.STEP}L)"


def route(
    join: BoundJoin,
    side: Side,
    layout: Layout,
    stable: bool,
    keep_nulls: bool = True,
    hash_bits: bool = True,
    with_copies: bool = False,
    packing: Packing | None = None,
) -> RoutedInput:
    """The input's rows, copied to their regions, not yet shuffled. Packed, they have no column of their key.

    With copies: how often each was, in a column; 2 or more also for a row that was not, but that `copied_rows` cannot
    tell from those that were. That is a row whose key is cut apart, and any row where rows are copied whatever their
    key is.
    """
    expr = layout.route_expr(side)
    df, row = with_routing(join, side, stable, keep_nulls, expr.run)
    out = RoutedInput(df, side, packing)
    kept = [c for c in join.side(side).columns if packing is None or c not in join.key_columns(side)]
    copies = "2" if layout.replicates(side) else "1"
    if expr.table is not None:
        df = df.join(F.broadcast(_table(df.sparkSession, expr.table)), F.expr("_key = _h"), "left")
        copies = "coalesce(_copies, 1)"
    elif expr.bounds is not None:
        df = with_places(join, side, df, expr, row, keep_nulls)
        copies = _copies_by_key(expr.bounds)
    p = layout.workers
    hit = f"_regions[{dealing.slot_sql(row, '_slots')}]"
    region = expr.region.format(key="_key", row=row, hit=hit)
    if region.startswith("explode"):  # a generator stands alone in its projection
        df = df.selectExpr("*", f"{region} AS _region")
        region = "_region"
    if hash_bits:
        # The uppermost bits: those that pick the region of a tail key are the lowest. Spark sees that it is never NULL.
        spare = NUMBER_BITS - (p - 1).bit_length()
        bits = f"shiftrightunsigned({_hash_or(row, keep_nulls)}, {64 - spare})"
        region = f"{region} + {p} * cast({bits} as int)"
    if packing is not None:
        (key,) = join.key_columns(side)
        region = packing.pack(key, region)
    routing = [f"{copies} AS {out.copies}"] * with_copies + [f"{region} AS {out.region}"]
    return replace(out, df=df.selectExpr(*kept, *routing))


def _hash_or(row: str, keep_nulls: bool) -> str:
    """The key's hash; rows without a key are told apart by their own."""
    return f"coalesce(_key, xxhash64({row}))" if keep_nulls else "_key"


def with_places(
    join: BoundJoin, side: Side, df: DataFrame, expr: RouteExpr, row: str, keep_nulls: bool
) -> DataFrame:
    """The list of every row's regions in `_places`: its range among the bounds is found level by level.

    The bounds are a balanced tree laid out by levels. A projection descends a few levels: it compares the row with
    the bound that stands at its place on each. So the code grows with the height of the tree, not with its bounds.
    """
    assert expr.bounds is not None
    routing = [f"{_position_or_zero(join, side)} AS _x"]
    if expr.bounds.cuts_keys:
        routing.append(f"{TIE_SQL.format(row=row)} AS _tie")
    df = df.selectExpr("*", *routing)
    levels = tree_levels(len(expr.bounds))
    at, steps = "0", [levels[i : i + LEVELS_AT_ONCE] for i in range(0, len(levels), LEVELS_AT_ONCE)]
    for i, step in enumerate(steps):
        found = _descend(expr.bounds, step, at)
        if i == len(steps) - 1:
            at = found
        else:
            df = df.selectExpr(*(c for c in df.columns if c != "_at"), f"{found} AS _at")
            at = "_at"
    size = 2 ** len(levels)
    lists = [*expr.places, *([expr.places[-1]] * (size - len(expr.places)))]
    places = f"array({', '.join(_array(r) for r in lists)})[{at}]"
    if not keep_nulls:
        df = df.selectExpr("*", f"{places} AS _places")
        return df if all(expr.places) else df.filter("size(_places) > 0")
    df = df.selectExpr("*", f"IF({matchable_sql(join, side)}, {places}, {_array(())}) AS _listed")
    return df.selectExpr("*", f"IF(size(_listed) > 0, _listed, {expr.lone.format(row=row)}) AS _places")


def _descend(bounds: Bounds, levels: list[list[int]], at: str) -> str:
    """The place on the level below the last of these, as nested comparisons."""

    def below(depth: int, path: int) -> str:
        if depth == len(levels):
            return f"{2**depth} * ({at}) + {path}"
        level = levels[depth]
        place = f"{2**depth} * ({at}) + {path}" if depth or at != "0" else "0"
        above = _above(bounds, level, place)
        return f"IF({above}, {below(depth + 1, 2 * path + 1)}, {below(depth + 1, 2 * path)})"

    return below(0, 0)


def tree_levels(bounds: int) -> list[list[int]]:
    """Indices of the bounds by level of a balanced search tree; places beyond the last bound hold its index."""
    height = int(bounds).bit_length()
    size = 2**height
    return [
        [min((2 * i + 1) * size // 2 ** (level + 1) - 1, bounds) for i in range(2**level)] for level in range(height)
    ]


def _above(bounds: Bounds, level: list[int], place: str) -> str:
    """Whether the row is at or above the bound at its place on this level; never, where there is no such bound."""
    there = [i for i in level if i < len(bounds)]
    if not there:
        return "false"

    def literal(values: list[str]) -> str:
        if len(level) == 1:
            return values[0]
        return f"array({', '.join(values + [values[-1]] * (len(level) - len(values)))})[{place}]"

    x = literal([_double(bounds.x[i]) for i in there])
    above = f"_x >= {x}"
    if bounds.cuts_keys:
        tie = literal([f"{int(bounds.tie[i])}L" for i in there])
        above = f"(_x > {x} OR (_x = {x} AND _tie >= {tie}))"
    if bounds.hash is not None:
        key = literal([long_sql(int(bounds.hash[i])) for i in there])
        above = f"(_key > {key} OR (_key = {key} AND {above}))"
    return above if len(there) == len(level) else f"({place} < {len(there)} AND {above})"


def _position_or_zero(join: BoundJoin, side: Side) -> str:
    return join.condition.spans[0].sql(side) if join.condition.spans else "0D"


def _array(regions: tuple[int, ...]) -> str:
    return f"array({', '.join(map(str, regions))})" if regions else "cast(array() AS array<int>)"


def _double(value: float) -> str:
    return f"{float(value)!r}D" if np.isfinite(value) else f"double('{'-' if value < 0 else ''}Infinity')"


def _copies_by_key(bounds: Bounds) -> str:
    """How often a row is copied; at least two where rows of its key may go different ways."""
    cut = np.flatnonzero(bounds.tie > 0)
    keys = {(None if bounds.hash is None else int(bounds.hash[i]), float(bounds.x[i])) for i in cut}
    if not keys:
        return "size(_places)"
    tests = [f"(_x = {_double(x)}" + (")" if h is None else f" AND _key = {long_sql(h)})") for h, x in sorted(keys)]
    return f"IF({' OR '.join(tests)}, greatest(size(_places), 2), size(_places))"


def exchange(
    routed: RoutedInput, layout: Layout, local: LocalJoin, join: BoundJoin, tasks: int, with_copies: bool = False
) -> RoutedInput:
    """Every region in one partition: the only shuffle of the input. Then what the local join adds to a row.

    The partition is the region's number modulo `tasks`, which divides the number of regions and so leaves what is
    above the region in that number out. Where regions share a partition the join still keeps them apart.

    A join in Arrow shuffles both inputs as one, so there is nothing to do for each.
    """
    if local.operator == "arrow":
        return routed
    shipped = as_shipped(routed, layout, local, join)
    df = shipped.df.repartitionById(tasks, F.expr(shipped.number))
    if local.above(routed.side) is None:
        df = _with_columns(df, local, routed.side, join)
    if with_copies and local.copies(routed.side):
        df = df.withColumn(routed.copies, F.lit(2))
    return replace(shipped, df=df)


def as_shipped(routed: RoutedInput, layout: Layout, local: LocalJoin, join: BoundJoin) -> RoutedInput:
    """The rows that cross the network: copied further where a bin is part of the region's number."""
    above, p = local.above(routed.side), layout.workers
    if above is None:
        return routed
    df = _with_columns(routed.df, local, routed.side, join)
    number = f"{routed.region} + {p} * cast(pmod({above}, {(2**31 - 1) // p}L) AS int) AS {routed.region}"
    kept = [c for c in routed.df.columns if c != routed.region]
    return RoutedInput(df.selectExpr(*kept, number), routed.side)


def _with_columns(df: DataFrame, local: LocalJoin, side: Side, join: BoundJoin) -> DataFrame:
    for name, sql in local.columns(side, join.condition).items():
        df = df.selectExpr("*", f"{sql} AS {name}")
    return df


def copied_rows(join: BoundJoin, side: Side, layout: Layout, local: LocalJoin, stable: bool) -> DataFrame:
    """The rows of a side that are sent to more than one region, or copied inside it."""
    df, expr = join.side(side), layout.route_expr(side)
    if local.copies(side):
        return df
    if expr.table is not None:
        return df.filter(is_copied(join, side, expr.table))
    if expr.bounds is None:
        return df
    numbered, row = with_routing(join, side, stable, keep_nulls=True)
    placed = with_places(join, side, numbered, expr, row, keep_nulls=True)
    return placed.filter(f"{_copies_by_key(expr.bounds)} > 1").select(*df.columns)


def region_of(routed: RoutedInput, workers: int) -> str:
    """The number of the region, without the hash bits above it."""
    return f"pmod({routed.number}, {workers})"


def is_copied(join: BoundJoin, side: Side, table: pa.Table) -> str:
    """Whether a row of this side has one of the keys that a routing table copies: hot ones, so they are not many."""
    keys = pc.unique(table.filter(pc.greater(table["copies"], 1))["h"])
    return f"{key_sql(join, side)} IN ({', '.join(long_sql(k.as_py()) for k in keys)})" if len(keys) else "false"


def _table(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table.rename_columns(["_h", "_slots", "_regions", "_copies"]))
