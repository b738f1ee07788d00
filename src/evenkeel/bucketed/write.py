"""Writing: keys counted in one pass, rows shuffled once by (bucket, shard), sorted, and committed in one step.

    sample -> bytes of a row; count rows by cell of the hash -> bucket count and shards -> unit number of every row
    repartitionById(units) -> sortWithinPartitions(key) -> Parquet in a staging folder
    files named by bucket and shard, counted and summed up -> one replacement of the metadata

Invariant: the unit of a row is a function of the row and the layout alone, so a retried task writes what its first
attempt did; and until the metadata is replaced no reader sees any of it. Cost: a pass over the keys, one shuffle.
Paper: SMBJoinSkewed, III-B (Listing 3).
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, get_args
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel import dealing
from evenkeel.bucketed import finish
from evenkeel.bucketed.layout import (
    BucketLayout,
    bucket_rows,
    cells_for,
    choose_buckets,
    parse_buckets,
    parse_size,
    plan_layout,
)
from evenkeel.bucketed.metadata import NULL_BUCKET, HotKey, KeyColumn, TableMeta
from evenkeel.bucketed.spark_partitions import parallelism
from evenkeel.bucketed.store import Store
from evenkeel.bucketed.table import BucketedTable
from evenkeel.errors import (
    AmbiguousColumn,
    IncompatibleTables,
    NotBucketed,
    UnknownColumn,
    UnknownOption,
    UnreadableInput,
    UnusableBuckets,
)
from evenkeel.spark.exchange import numbered
from evenkeel.spark.inputs import contains_type, explain_text, keeps_order, row_bytes, size_in_bytes
from evenkeel.spark.session import over_connect, settings
from evenkeel.types import Int64

Mode = Literal["error", "overwrite", "append"]
"""What to do where a table is already."""
Progress = Callable[[str], None]
STEPS = ("announced", "counted", "staged", "placed", "committed", "cleaned")
"""What `progress` is told, each after it is done."""
FEW_ROWS, SAMPLE_ROWS, SAMPLE_BYTES = 50, 20_000, 8 << 20
VARIED = 0.95
"""From this share of distinct values in the sample on, a column gets no dictionary: it has 200,000 values or more."""
BYTES_A_COUNT = 12 << 20
"""Of the table, for each task that counts keys; twice as many where nothing waits for it."""
SORTED_SHUFFLE, SORTED_SHUFFLE_BYTES = 201, 64 << 20
"""Up to 200 partitions Spark's shuffle serializes rows into a file each, at a third more CPU time than by sorting
serialized rows; so a table of some size has more, the last of them empty."""
HOT_CELLS, HOT_KEYS = 32, 20
HOT_SHARE = 1 / 2000
"""A key is worth naming from this share of the table on."""
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
}
"""One file a unit, and only types that every Parquet reader understands."""
_COUNTING = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "16"}
"""Where a table is only read, planned once and summed up side by side: AQE plans again and leaves it to one task.
What the DataFrame computes itself, such as joins, keeps the session's settings."""
_KEY_TYPES = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_UNKEPT = (
    T.NullType, T.VariantType, T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType,
    T.UserDefinedType,
)  # fmt: skip


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    *,
    bucket_size: int | str = "256MB",
    buckets: int | None = None,
    mode: str = "error",
    progress: Progress | None = None,
) -> BucketedTable:
    """Bucket and sort a DataFrame by its key, so that it joins other such tables without a shuffle.

    key          a column or a list of columns
    bucket_size  about how large a file may become; bucket count and shards follow from the data
    buckets      a fixed number of buckets instead, none of them sharded
    mode         error, overwrite or append
    progress     called with each of `STEPS` once it is done

    The DataFrame is read twice, its keys first: cache it if it is costly to compute.
    """
    if not isinstance(df, DataFrame):
        raise UnreadableInput.not_a_frame("given", df)
    if df.isStreaming:
        raise UnreadableInput.streaming("given")
    if mode not in get_args(Mode):
        raise UnknownOption.of("mode", mode, get_args(Mode))
    size = parse_size(bucket_size)
    count = None if buckets is None else parse_buckets(buckets)
    keys = _keys(df, key)
    schema = T.StructType([T.StructField(f.name, _nullable(f.dataType), True) for f in df.schema]).json()
    store = Store.at(path)
    old = _existing(store, mode, keys, schema)
    if mode == "append" and old is not None:
        count, size = old.buckets, old.bucket_size
    tell: Progress = progress or (lambda step: None)
    mine = store.begin()
    try:
        tell(STEPS[0])
        made = TableMeta(keys, count or 0, size if buckets is None else 0, schema, ())
        if mode == "append" and old is not None:
            made = old
        return _write(df, store, made, old, mode == "append", tell)
    finally:
        store.end(mine)


def _write(
    df: DataFrame, store: Store, made: TableMeta, old: TableMeta | None, append: bool, tell: Progress
) -> BucketedTable:
    sample = _sample(df)
    names = df.columns
    df = df.toDF(*(f"_c{i}" for i in range(len(names))))  # no name of the user's meets one of ours, or a parser
    keys = [f"_c{names.index(n)}" for n in made.names]
    layout, find_hot = _plan(df, keys, sample, made, old if append else None)
    tell(STEPS[1])
    run = uuid4().hex[:12]
    staging = f"_staging-{run}"
    with finish.undone(store, run):
        try:
            with ThreadPoolExecutor(1) as beside:  # nothing waits for the names of hot keys
                found = beside.submit(inheritable_thread_target(df.sparkSession)(find_hot))
                _stage(df, names, keys, store.url(staging), layout, _varied(sample, made.names))
                hot = found.result()
            tell(STEPS[2])
            _check_alone(store, old)  # another writer would have removed what was staged
            files = finish.place(df.sparkSession, store, staging, run, made, layout)
            tell(STEPS[3])
        finally:
            store.drop(staging)
        _check_alone(store, old)
        kept = old.files if append and old is not None else ()
        retired = () if append and old is not None else tuple(sorted(finish.folders(old)))
        hot_keys = _merge_hot(old.hot_keys if append and old is not None else (), hot)
        meta = TableMeta(
            made.key, layout.buckets, made.bucket_size, made.schema, (*kept, *files), hot_keys,
            (old.generation if old is not None else 0) + 1, retired,
        )  # fmt: skip
        store.commit(meta)
    tell(STEPS[4])
    finish.clean(store, meta)
    tell(STEPS[5])
    return BucketedTable(store.path, meta)


def _check_alone(store: Store, old: TableMeta | None) -> None:
    now = store.find_meta()
    if (now and now.generation) != (old and old.generation):
        raise IncompatibleTables.changed(store.path)


def _sample(df: DataFrame) -> pa.Table:
    """The first rows: a few, and if those are not all, as many as are of a bounded size."""
    few = _first(df, FEW_ROWS)
    if len(few) < FEW_ROWS:
        return few
    return _first(df, int(min(SAMPLE_ROWS, max(FEW_ROWS, SAMPLE_BYTES * FEW_ROWS / max(1, few.nbytes)))))


def _first(df: DataFrame, count: int) -> pa.Table:
    """Of as few partitions as have them, where a limit would look into all."""
    try:
        rows = df.take(count)
        spark = df.sparkSession
        options = {} if over_connect(spark) else {"verifySchema": False}  # there it never is, and says so
        return spark.createDataFrame(rows, df.schema, **options).toArrow()
    except (ValueError, TypeError, OverflowError):  # Python has no year 10000, and no list as a key
        return df.limit(count).toArrow()


def _existing(store: Store, mode: str, keys: tuple[KeyColumn, ...], schema: str) -> TableMeta | None:
    old = store.find_meta()
    if old is None:
        names = [n for n in store.names() if not finish.OURS.fullmatch(n)]
        if names:
            raise NotBucketed.occupied(store.path)
        return None
    if mode == "error":
        raise NotBucketed.exists(store.path)
    if mode == "append":
        for what, there, asked in (
            ("the key", [f"{k.name} {k.type}" for k in old.key], [f"{k.name} {k.type}" for k in keys]),
            ("the columns", _shown(old.schema), _shown(schema)),
        ):
            if there != asked:
                raise IncompatibleTables.other_table(store.path, what, ", ".join(there), ", ".join(asked))
    return old


def _nullable(kind: T.DataType) -> T.DataType:
    """As Parquet gives it back: anything inside may be NULL."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _nullable(f.dataType), True) for f in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def _shown(schema: str) -> list[str]:
    return [f"{f.name} {f.dataType.simpleString()}" for f in T.StructType.fromJson(json.loads(schema))]


def _keys(df: DataFrame, key: str | Sequence[str]) -> tuple[KeyColumn, ...]:
    names = [key] if isinstance(key, str) else list(key) if isinstance(key, (list, tuple)) else []
    if not names or not all(isinstance(n, str) for n in names):
        raise UnusableBuckets.no_key(key)
    seen: set[str] = set()
    for column in df.columns:
        if column.lower() in seen:
            raise AmbiguousColumn.repeated(column, "given")
        seen.add(column.lower())
    for field in df.schema:
        if contains_type(field.dataType, _UNKEPT):
            raise UnusableBuckets.column_type(field.name, field.dataType.simpleString())
    out = []
    for name in dict.fromkeys(names):
        if name not in df.columns:
            raise UnknownColumn.in_condition(name, "given", df.columns)
        field = df.schema[name]
        kind, shown = field.dataType, field.dataType.simpleString()
        if not isinstance(kind, _KEY_TYPES):
            raise UnusableBuckets.key_type(name, shown, "it has no order that files could be sorted by")
        if isinstance(kind, T.StringType) and kind.collation != T.StringType().collation:
            raise UnusableBuckets.key_type(name, shown, "texts that its collation holds equal may hash differently")
        if "char(" in str(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")).replace("varchar(", ""):
            raise UnusableBuckets.key_type(name, shown, "a CHAR is padded when it is compared")
        out.append(KeyColumn(name, shown))
    return tuple(out)


def _plan(
    df: DataFrame, key: list[str], sample: pa.Table, made: TableMeta, old: TableMeta | None
) -> tuple[BucketLayout, Callable[[], tuple[HotKey, ...]]]:
    """The layout, and how to find the hottest keys."""
    if made.bucket_size == 0:
        return BucketLayout(made.buckets, {}), tuple
    text = explain_text(df)
    guess = size_in_bytes(text)
    modulus = cells_for(made.buckets or None, guess, made.bucket_size)
    keys = df.select(*key)

    def in_tasks_of(size: int) -> DataFrame:
        """Every task of an aggregate begins with a page of 64 MB, however little it counts."""
        if guess is None:
            return keys
        return keys.coalesce(max(parallelism(df.sparkSession), math.ceil(guess / size)))

    with settings(df.sparkSession, _COUNTING if keeps_order(text) else {}):
        counted = (
            in_tasks_of(BYTES_A_COUNT).select(F.expr(_bucket_sql(key, modulus)).alias("cell"))
            .groupBy("cell").agg(F.count("*").alias("n")).toArrow()
        )  # fmt: skip
    cells: Int64 = np.zeros(modulus, dtype=np.int64)
    at, n = (np.asarray(counted[c]).astype(np.int64) for c in ("cell", "n"))
    nulls = int(n[at == NULL_BUCKET].sum())
    cells[at[at >= 0]] = n[at >= 0]
    width = _row_bytes(sample, made.names) if len(sample) else row_bytes(df.schema)
    buckets = made.buckets or choose_buckets(cells, width, made.bucket_size)
    layout = plan_layout(bucket_rows(cells, buckets), nulls, width, made.bucket_size, old)
    return layout, partial(_hot_keys, in_tasks_of(2 * BYTES_A_COUNT), cells)


def _bucket_sql(key: Sequence[str], modulus: int) -> str:
    there = " AND ".join(f"{c} IS NOT NULL" for c in key)
    return f"CASE WHEN {there} THEN pmod(hash({', '.join(key)}), {modulus}) ELSE {NULL_BUCKET} END"


def _varied(sample: pa.Table, names: Sequence[str]) -> list[str]:
    """Columns, beside the key, whose values hardly repeat: a dictionary of them is built in vain and thrown away."""
    out = []
    for c in (c for c in sample.column_names if c not in names and "." not in c):
        kind = sample[c].type
        if not len(sample) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
            continue
        if pc.count_distinct(sample[c]).as_py() >= VARIED * len(sample):
            out.append(c)
    return out


def _row_bytes(sample: pa.Table, names: Sequence[str]) -> float:
    """Bytes of a row in Parquet, of a sample that is sorted as the files will be."""
    sink = io.BytesIO()
    repeated = [c for c in sample.column_names if c not in _varied(sample, names)]
    in_order = sample.sort_by([(n, "ascending") for n in names])
    pq.write_table(in_order, sink, compression="snappy", use_dictionary=repeated)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    size = sum(
        footer.row_group(g).column(c).total_compressed_size
        for g in range(footer.num_row_groups)
        for c in range(footer.num_columns)
    )
    return max(0.125, float(size) / len(sample))


def _hot_keys(keys: DataFrame, cells: Int64) -> tuple[HotKey, ...]:
    """The hottest keys and their rows: counted in the few cells that hold them."""
    order = np.argsort(-cells)[:HOT_CELLS]
    usual = max(3 * float(cells[cells > 0].mean()) if cells.any() else 0.0, float(cells.sum()) * HOT_SHARE, 1.0)
    hot = [int(c) for c in order if cells[c] > usual]
    if not hot:
        return ()
    inside = keys.filter(F.expr(_bucket_sql(keys.columns, len(cells))).isin(hot))
    counted = (
        inside.groupBy(*keys.columns).agg(F.count("*").alias("_rows"))
        .orderBy(F.col("_rows").desc()).limit(HOT_KEYS)
        .select(*(F.col(c).cast("string") for c in keys.columns), "_rows")
    )  # fmt: skip
    table = counted.toArrow().to_pylist()
    return tuple(HotKey(tuple(r[c] for c in keys.columns), int(r["_rows"])) for r in table)


def _merge_hot(old: tuple[HotKey, ...], new: tuple[HotKey, ...]) -> tuple[HotKey, ...]:
    rows: dict[tuple[str | None, ...], int] = {}
    for h in (*old, *new):
        rows[h.key] = rows.get(h.key, 0) + h.rows
    return tuple(HotKey(k, n) for k, n in sorted(rows.items(), key=lambda e: -e[1])[:HOT_KEYS])


def _stage(
    df: DataFrame, names: list[str], key: list[str], url: str, layout: BucketLayout, varied: Sequence[str]
) -> None:
    """Every unit one partition, sorted, written as one file under `names`; no dictionaries of those `varied`."""
    text = explain_text(df)
    rows, row = numbered(df, df.columns, keeps_order(text))
    units = len(layout.units())
    if (size_in_bytes(text) or 0) >= SORTED_SHUFFLE_BYTES:
        units = max(units, SORTED_SHUFFLE)
    unit = F.expr(_unit_sql(key, layout, row)).alias("_u")
    routed = rows.select(*df.columns, unit)
    placed = routed.repartitionById(units, "_u").drop("_u").sortWithinPartitions(*key).toDF(*names)
    with settings(df.sparkSession, _SETTINGS):
        writer = placed.write.option("compression", "snappy").option("maxRecordsPerFile", "0")
        writer.options(**{f"parquet.enable.dictionary#{c}": "false" for c in varied}).parquet(url)


def _unit_sql(key: Sequence[str], layout: BucketLayout, row: str) -> str:
    """The number of a row's unit: its bucket, or where that is sharded a shard picked by the row's number."""
    at = {unit: i for i, unit in enumerate(layout.units())}
    nulls = layout.shards.get(NULL_BUCKET)
    first_null = at[NULL_BUCKET, nulls.first if nulls else 0]
    alone = f"{first_null} + {dealing.slot_sql(row, nulls.count if nulls else 1)}"
    there = " AND ".join(f"{c} IS NOT NULL" for c in key)
    bucket = f"pmod(hash({', '.join(key)}), {layout.buckets})"
    cut = {b: s for b, s in layout.shards.items() if b != NULL_BUCKET and s.count > 1}
    if not cut:
        return f"CASE WHEN {there} THEN {bucket} ELSE {alone} END"
    counts = ",".join(str(cut[b].count if b in cut else 1) for b in range(layout.buckets))
    offsets = ",".join(str(at[b, cut[b].first + 1] if b in cut else 0) for b in range(layout.buckets))
    counts, offsets = (f"cast(split('{text}', ',') AS array<int>)[{bucket}]" for text in (counts, offsets))
    shard = dealing.slot_sql(row, counts)
    return f"CASE WHEN NOT ({there}) THEN {alone} WHEN {shard} = 0 THEN {bucket} ELSE {offsets} + {shard} - 1 END"
