"""Spark's own bucketed scan over a table's files: merge joins in generated code, with no exchange and no sort.

A temporary entry in the session's catalog tells Spark how the files are bucketed and sorted; the DataFrame keeps what
it was told, and the entry is dropped at once. No metastore is needed: Spark's in-memory catalog will do. The scan
lists a folder, so it is used only where the folder holds the files that the metadata lists and nothing else.

The i-th shards of all buckets are a layer, a bucketed table of its own with one file a bucket. Layers are crossed:

    join = union of (left layer i) join (right layer j)

which gives every matching pair once, and judges a preserved row once where its bucket has one shard on the other
side. Other buckets are left to the Arrow merge.

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
from evenkeel.bucketed.metadata import NULL_BUCKET, SHARD, TableMeta, Unit
from evenkeel.bucketed.pair import LEAST_BYTES
from evenkeel.bucketed.store import Store, sums_of
from evenkeel.errors import BrokenTable
from evenkeel.spark.inputs import quoted
from evenkeel.spark.session import over_connect, settings
from evenkeel.types import SIDES, How, Side, other, preserved

ORDERED = "spark.sql.legacy.bucketedTableScan.outputOrdering"
"""Without it Spark sorts what is sorted: since 3.0 it no longer looks whether a bucket is one sorted file."""
LISTED = "spark.sql.hive.manageFilesourcePartitions"
"""Off while an entry is made: its shards are then found by listing, not looked up in the catalog when it is gone."""
VARIABLES = "spark.sql.variable.substitute"
"""Off while an entry is made: a column may be called ${x}."""
ONE_CLASS = "spark.sql.codegen.useIdInClassName"
"""Off where there are several layers: their generated code is then the same text, compiled and warmed up once."""
MOST_LAYERS = 64
"""Pairs of layers that one plan is made of; what is hotter goes to the Arrow merge."""
_NORMALIZED = ("float", "double")
"""Spark joins floating-point keys by a normalized copy, which it does not see as the bucketing column."""


@dataclass(frozen=True)
class NativeSide:
    store: Store
    meta: TableMeta
    folder: str


@dataclass(frozen=True)
class Layers:
    """A pair of layers and what is in it."""

    left: int
    right: int
    loads: dict[int, int]
    """Bytes by bucket, of the buckets that both layers hold."""


def native_groups(left: TableMeta, right: TableMeta, how: How) -> set[int]:
    """The buckets that Spark can merge itself: one file a shard, one shard where the other side's rows are judged."""
    if left.buckets != right.buckets or any(k.type in _NORMALIZED for k in left.key):
        return set()
    metas: dict[Side, TableMeta] = {"left": left, "right": right}

    def fits(side: Side, units: tuple[Unit, ...]) -> bool:
        most = 1 if other(side) in preserved(how) else MOST_LAYERS
        return all(len(u.files) == 1 for u in units) and all(u.shard < most for u in units)

    return {b for b in range(left.buckets) if all(fits(s, metas[s].by_bucket.get(b, ())) for s in SIDES)}


def native_side(store: Store, meta: TableMeta) -> NativeSide | None:
    """The folder of a table that was written at once, if it holds exactly what the metadata lists.

    On a local disk every file must have its checksums beside it: Spark compares them with all that it reads.
    """
    known = {f.path: f.bytes for f in meta.files if f.bucket != NULL_BUCKET}
    folders = {p.split("/")[0] for p in known}
    if len(folders) != 1:
        return None
    folder = folders.pop()
    listed = {f"{folder}/{n}": s for n, s in store.sizes(folder).items()}
    found = {n: s for n, s in listed.items() if not n.rsplit("/", 1)[-1].startswith(".")}
    summed = not store.local or all(sums_of(n) in listed for n in known)
    return NativeSide(store, meta, folder) if found == known and summed else None


def can_run_here(spark: SparkSession) -> bool:
    """Over Spark Connect names are looked up anew for every query, so a dropped entry would be missed."""
    return not over_connect(spark)


def layers(sides: dict[Side, NativeSide], groups: Collection[int], how: How) -> list[Layers] | None:
    """Every pair of layers in which these buckets have something to join; None if there are too many."""
    found: dict[tuple[int, int], dict[int, int]] = {(0, 0): {}}
    keep = preserved(how)
    for b in groups:
        units = {s: sides[s].meta.by_bucket.get(b, ()) for s in SIDES}
        for s in SIDES:
            if not units[s] and other(s) in keep:  # nobody to match, still to be kept
                units[s] = (Unit(b, 0, ()),)
        for u in units["left"]:
            for v in units["right"]:
                found.setdefault((u.shard, v.shard), {})[b] = u.bytes + v.bytes
    if len(found) > MOST_LAYERS:
        return None
    return [Layers(i, j, loads) for (i, j), loads in sorted(found.items())]


def native_join(
    spark: SparkSession,
    sides: dict[Side, NativeSide],
    how: How,
    columns: tuple[OutColumn, ...],
    groups: Collection[int],
    pairs: list[Layers],
) -> DataFrame | None:
    """The join of these buckets; None where Spark's catalog does not take the tables."""
    spark.conf.set(ORDERED, "true")
    if len(pairs) > 1:
        spark.conf.set(ONE_CLASS, "false")
    left_out = set(range(sides["left"].meta.buckets)) - set(groups)
    smaller: Side = min(SIDES, key=lambda s: sides[s].meta.rows)
    filtered = preserved(how) or {smaller}
    frames: dict[Side, DataFrame] = {}
    for s in SIDES:
        df = _bucketed(spark, sides[s])
        if df is None:
            return None
        meta = sides[s].meta
        wanted = _wanted(s, columns)
        keys = [f"_{s[0]}k{i}" for i in range(len(meta.names))]
        df = df.select(*map(quoted, (*meta.names, *wanted)), SHARD).toDF(*keys, *wanted.values(), SHARD)
        if left_out and s in filtered:
            listed = ", ".join(map(str, sorted(left_out)))
            df = df.filter(f"pmod(hash({', '.join(keys)}), {meta.buckets}) NOT IN ({listed})")
        frames[s] = df
    out: DataFrame | None = None
    enough = max(LEAST_BYTES, max((load for pair in pairs for load in pair.loads.values()), default=0))
    on = F.expr(" AND ".join(f"_lk{i} = _rk{i}" for i in range(len(sides["left"].meta.key))))
    shown = _shown(sides["left"].meta, how, columns)
    for pair in pairs:
        layer = {"left": frames["left"].filter(f"{SHARD} = {pair.left}").drop(SHARD)}
        layer["right"] = frames["right"].filter(f"{SHARD} = {pair.right}").drop(SHARD)
        # Spark reads on the right only what a row on the left asks for: the larger side of an inner join goes there.
        first: Side = other(smaller) if how == "inner" else "left"
        part = layer[first].join(layer[other(first)].hint("merge"), on, how)
        count = partitions(pair.loads, sides["left"].meta.buckets, enough)
        part = part.selectExpr(*shown).toDF(*(c.name for c in columns))
        part = part.coalesce(count) if count < sides["left"].meta.buckets else part
        out = part if out is None else out.unionAll(part)
    return out


def partitions(loads: dict[int, int], buckets: int, enough: int) -> int:
    """Into how few runs of neighbouring buckets to cut a layer without making a task longer than `enough`.

    Small buckets go together, and a layer of hot ones holds few: tasks for the others would be empty. Where neighbours
    are both hot, that many runs may not be had: then into those whose longest is shortest.
    """

    def longest(count: int) -> int:
        sums = [0] * count
        for b, load in loads.items():
            at = next(i for i in range(b * count // buckets, count) if b < (i + 1) * buckets // count)
            sums[at] += load
        return max(sums, default=0)

    counts = range(1, min(buckets, 3 * len(loads)) + 1)
    return min(counts, key=lambda n: (max(longest(n), enough), n), default=1)


def _wanted(side: Side, columns: tuple[OutColumn, ...]) -> dict[str, str]:
    """The columns of a side that are shown, beside its key, and what they are called until then."""
    sources = dict.fromkeys(c.source for c in columns if c.side == side and c.right_key is None)
    return {source: f"_{side[0]}c{i}" for i, source in enumerate(sources)}


def _shown(left: TableMeta, how: How, columns: tuple[OutColumn, ...]) -> list[str]:
    """What is shown as SQL, without the names it is shown under: Spark's parser would read variables in those."""
    at = {n: i for i, n in enumerate(left.names)}
    wanted = {s: _wanted(s, columns) for s in SIDES}
    out = []
    for c in columns:
        if c.right_key is None:
            out.append(wanted[c.side][c.source])
            continue
        mine, theirs = f"_lk{at[c.source]}", f"_rk{at[c.source]}"
        out.append(theirs if how == "right" else f"coalesce({mine}, {theirs})" if how == "full" else mine)
    return out


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
    kinds = {s: {f.name: f.dataType for f in _schema(metas[s])} for s in SIDES}
    for s in SIDES:
        files = [f for u in metas[s].by_bucket.get(NULL_BUCKET, ()) for f in u.files]
        if s not in preserved(how) or not files:
            continue
        for f in files:
            stores[s].check(f)
        df = spark.read.schema(_schema(metas[s])).parquet(*(stores[s].url(f.path) for f in files))
        shown = []
        for c in columns:
            if c.right_key is not None or c.side == s:
                source = c.right_key if c.right_key and s == "right" else c.source
                shown.append(F.col(quoted(source)).alias(c.name))
            else:
                shown.append(F.lit(None).cast(kinds[c.side][c.source]).alias(c.name))
        part = df.select(*shown)
        out = part if out is None else out.unionAll(part)
    return out


def _bucketed(spark: SparkSession, side: NativeSide) -> DataFrame | None:
    name = f"evenkeel_{uuid4().hex}"
    keys = ", ".join(quoted(n) for n in side.meta.names)
    columns = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in _schema(side.meta))
    location = side.store.url(side.folder).replace("\\", "\\\\").replace("'", "\\'")
    with settings(spark, {LISTED: "false", VARIABLES: "false"}):
        try:
            spark.sql(
                f"CREATE TABLE {name} ({columns}, {SHARD} INT) USING parquet "
                "OPTIONS ('parquet.page.verify-checksum.enabled' = 'true') "
                f"PARTITIONED BY ({SHARD}) CLUSTERED BY ({keys}) SORTED BY ({keys}) INTO {side.meta.buckets} BUCKETS "
                f"LOCATION '{location}'"
            )
        except AnalysisException:  # a catalog that takes no such table; another way to read it is at hand
            return None
        try:
            table = spark.table(name)
        finally:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    if native_side(side.store, side.meta) is None:  # Spark takes a folder that is gone for an empty table
        raise BrokenTable.changed_since(side.store.path)
    return table


def _schema(meta: TableMeta) -> StructType:
    return StructType.fromJson(json.loads(meta.schema))
