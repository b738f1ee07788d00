"""The pairs of a region found in Arrow: both inputs as one, shuffled once, joined partition by partition.

    left  (region, 0, columns, -      )  \
                                           one exchange by region -- DuckDB pairs row numbers -- rows are taken
    right (region, 1, -      , columns)  /

Results leave in batches, so that a region with much output does not fill the worker's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from evenkeel.conditions import Span
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import RoutedInput
from evenkeel.spark.inputs import contains_type
from evenkeel.spark.workers import in_workers
from evenkeel.types import SIDES, Side

BATCH = 50_000
_NOT_IN_ARROW = (T.CalendarIntervalType, T.VariantType, T.UserDefinedType, T.YearMonthIntervalType)


def fits_arrow(schema: T.StructType) -> bool:
    """Whether every column can go through Arrow and back."""
    return not contains_type(schema, _NOT_IN_ARROW) and not _repeats_names(schema)


def _repeats_names(kind: T.DataType) -> bool:
    """Whether some struct has two fields of one name, which Arrow's have not in Spark."""
    if isinstance(kind, T.StructType):
        return len(set(kind.names)) < len(kind) or any(_repeats_names(f.dataType) for f in kind)
    if isinstance(kind, T.MapType):
        return _repeats_names(kind.keyType) or _repeats_names(kind.valueType)
    return isinstance(kind, T.ArrayType) and _repeats_names(kind.elementType)


def arrow_pairs(join: BoundJoin, routed: dict[Side, RoutedInput], workers: int) -> DataFrame:
    """Every pair of a region within all spans, with the number of its region."""
    spans, fields = join.condition.spans, {s: _fields(routed[s].df) for s in SIDES}
    names = {s: [f.name for f in fields[s]] for s in SIDES}
    parts = []
    for side in SIDES:
        tag = [f"{routed[side].region} AS _region", f"{SIDES.index(side)} AS _side"]
        keys = [k for i, s in enumerate(spans) for k in _bounds(s, side, i)]
        parts.append(routed[side].df.selectExpr(*tag, *keys, *names[side]))
    both = parts[0].unionByName(parts[1], allowMissingColumns=True).repartitionById(workers, "_region")
    regions = [T.StructField("_l_region", T.IntegerType()), T.StructField("_r_region", T.IntegerType())]
    schema = T.StructType([*regions, *(f for s in SIDES for f in fields[s])])
    return in_workers(both, _joiner((names["left"], names["right"]), len(spans)), schema)


def _fields(df: DataFrame) -> list[T.StructField]:
    return [f for f in df.schema if not f.name.endswith(("_region", "_copies"))]


def _bounds(span: Span, side: Side, i: int) -> list[str]:
    """Left rows bring a position, right rows the range of positions they may match."""
    if side == "left":
        return [f"{span.left} AS _a{i}"]
    low, high = span.reach_sql("right")
    return [f"{low} AS _a{i}", f"{high} AS _b{i}"]


def _joiner(
    names: tuple[list[str], list[str]], spans: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    keys = [f"_{e}{i}" for i in range(spans) for e in "ab"]
    within = " AND ".join(f"l._a{i} >= r._a{i} AND l._a{i} <= r._b{i}" for i in range(spans))

    def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import duckdb

        read = [b for b in batches if len(b)]
        if not read:
            return
        table = pa.Table.from_batches(read)
        rows = [table.filter(pc.equal(table["_side"], s)) for s in (0, 1)]
        if not len(rows[0]) or not len(rows[1]):
            return
        region = table["_region"][0].as_py()
        numbered = [r.select(keys).append_column("n", pa.array(np.arange(len(r)))) for r in rows]
        payload = [r.select(n).combine_chunks() for r, n in zip(rows, names, strict=True)]
        with duckdb.cursor() as db:  # to open a database of its own would take 17 ms a region
            db.execute("SET threads = 1")
            db.register("l", numbered[0])
            db.register("r", numbered[1])
            for found in db.sql(f"SELECT l.n, r.n FROM l JOIN r ON {within}").to_arrow_reader(BATCH):
                taken = [p.take(found.column(k)) for k, p in enumerate(payload)]
                here = pa.array(np.full(len(found), region, dtype=np.int32))
                columns = [here, here, *(c for t in taken for c in t.columns)]
                out = ["_l_region", "_r_region", *(c for t in taken for c in t.column_names)]
                yield from pa.table(columns, names=out).combine_chunks().to_batches()

    return joined
