"""Spark's own bucketed scan over a table's plain files: a merge join in generated code, with no exchange and no sort.

A temporary entry in the session's catalog tells Spark how the files are bucketed and sorted; the DataFrame keeps what
it was told, and the entry is dropped at once. No metastore is needed: Spark's in-memory catalog will do. The scan
lists a folder, so it is used only where the folder holds the files that the metadata lists and nothing else.

Invariant: what Spark is told is true. A row is in the bucket that its hash says, so Spark may prune buckets by a
filter on the key and may join the result further by its partitioning.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from evenkeel.bucketed.columns import OutColumn
from evenkeel.bucketed.metadata import NULL_BUCKET, TableMeta
from evenkeel.bucketed.store import Store
from evenkeel.types import SIDES, How, Side, preserved

ORDERED = "spark.sql.legacy.bucketedTableScan.outputOrdering"
"""Without it Spark sorts what is sorted: since 3.0 it no longer looks whether a bucket is one sorted file."""
_NORMALIZED = ("float", "double")
"""Spark joins floating-point keys by a normalized copy, which it does not see as the bucketing column."""


@dataclass(frozen=True)
class NativeSide:
    store: Store
    meta: TableMeta
    folder: str


def native_groups(left: TableMeta, right: TableMeta) -> set[int]:
    """The buckets that Spark can merge itself: on neither side more than one file."""
    if left.buckets != right.buckets or any(k.type in _NORMALIZED for k in left.key):
        return set()
    out = set()
    for b in range(left.buckets):
        files = [f for m in (left, right) for u in m.by_bucket.get(b, ()) for f in u.files]
        if all(f.path.startswith("plain-") for f in files) and all(
            len(m.by_bucket.get(b, ())) <= 1 and sum(len(u.files) for u in m.by_bucket.get(b, ())) <= 1
            for m in (left, right)
        ):
            out.add(b)
    return out


def native_side(store: Store, meta: TableMeta) -> NativeSide | None:
    """The folder of plain files, if it holds exactly what the metadata lists there."""
    plain = {f.path: f.bytes for f in meta.files if f.path.startswith("plain-")}
    folders = {p.split("/")[0] for p in plain}
    if len(folders) != 1:
        return None
    folder = folders.pop()
    found = {f"{folder}/{n}": size for n, size in store.sizes(folder).items() if not n.startswith((".", "_"))}
    return NativeSide(store, meta, folder) if found == plain else None


def can_run_here(spark: SparkSession) -> bool:
    """Over Spark Connect names are looked up anew for every query, so a dropped entry would be missed."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def native_join(
    spark: SparkSession,
    sides: dict[Side, NativeSide],
    how: How,
    columns: tuple[OutColumn, ...],
    hot: Collection[int],
) -> DataFrame | None:
    """The join of all buckets but the hot ones; None where Spark's catalog does not take the tables."""
    spark.conf.set(ORDERED, "true")
    keys = len(sides["left"].meta.key)
    smaller: Side = min(SIDES, key=lambda s: sides[s].meta.rows)
    filtered = preserved(how) or {smaller}
    frames = {}
    for s in SIDES:
        df = _bucketed(spark, sides[s])
        if df is None:
            return None
        meta = sides[s].meta
        names = [_quoted(n) for n in meta.names]
        if hot and s in filtered:
            listed = ", ".join(map(str, sorted(hot)))
            df = df.filter(f"pmod(hash({', '.join(names)}), {meta.buckets}) NOT IN ({listed})")
        wanted = dict.fromkeys(c.source for c in columns if c.side == s and c.right_key is None)
        picked = [F.col(_quoted(n)).alias(f"_{s[0]}c_{n}") for n in wanted]
        frames[s] = df.select(*(F.col(n).alias(f"_{s[0]}k{i}") for i, n in enumerate(names)), *picked)
    on = [F.col(f"_lk{i}") == F.col(f"_rk{i}") for i in range(keys)]
    joined = frames["left"].join(frames["right"].hint("merge"), on, how)
    at = {n: i for i, n in enumerate(sides["left"].meta.names)}
    out = []
    for c in columns:
        if c.right_key is not None:
            i = at[c.source]
            mine, theirs = F.col(f"_lk{i}"), f"_rk{i}"
            key = F.col(theirs) if how == "right" else F.coalesce(mine, F.col(theirs)) if how == "full" else mine
            out.append(key.alias(c.name))
        else:
            out.append(F.col(_quoted(f"_{c.side[0]}c_{c.source}")).alias(c.name))
    return joined.select(*out)


def null_rows(
    spark: SparkSession,
    stores: dict[Side, Store],
    metas: dict[Side, TableMeta],
    how: How,
    columns: tuple[OutColumn, ...],
) -> DataFrame | None:
    """The rows that a preserved side keeps although a NULL in their key lets them match nothing."""
    out: DataFrame | None = None
    if how == "left_semi":
        return None
    for s in SIDES:
        files = [f for u in metas[s].by_bucket.get(NULL_BUCKET, ()) for f in u.files]
        if s not in preserved(how) or not files:
            continue
        for f in files:
            stores[s].check(f)
        schema = _schema(metas[s])
        kinds = {o: {f.name: f.dataType for f in _schema(metas[o])} for o in SIDES}
        df = spark.read.schema(schema).parquet(*(stores[s].url(f.path) for f in files))
        shown = []
        for c in columns:
            if c.right_key is not None or c.side == s:
                source = c.right_key if c.right_key and s == "right" else c.source
                shown.append(F.col(_quoted(source)).alias(c.name))
            else:
                shown.append(F.lit(None).cast(kinds[c.side][c.source]).alias(c.name))
        part = df.select(*shown)
        out = part if out is None else out.unionAll(part)
    return out


def _bucketed(spark: SparkSession, side: NativeSide) -> DataFrame | None:
    name = f"evenkeel_{uuid4().hex}"
    keys = ", ".join(_quoted(n) for n in side.meta.names)
    columns = ", ".join(f"{_quoted(f.name)} {f.dataType.simpleString()}" for f in _schema(side.meta))
    location = side.store.url(side.folder).replace("\\", "\\\\").replace("'", "\\'")
    try:
        spark.sql(
            f"CREATE TABLE {name} ({columns}) USING parquet OPTIONS ('parquet.page.verify-checksum.enabled' = 'true') "
            f"CLUSTERED BY ({keys}) SORTED BY ({keys}) INTO {side.meta.buckets} BUCKETS LOCATION '{location}'"
        )
    except AnalysisException:  # a catalog that takes no such table; another way to read it is at hand
        return None
    try:
        return spark.table(name)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _schema(meta: TableMeta) -> StructType:
    return StructType.fromJson(json.loads(meta.schema))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
