"""The end of a write: files get the names of their bucket and shard, are counted and summed up; old ones go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from evenkeel.bucketed.layout import BucketLayout
from evenkeel.bucketed.metadata import NULL_BUCKET, SHARD, DataFile, TableMeta
from evenkeel.bucketed.store import Store, sums_of
from evenkeel.errors import EvenkeelError, NotBucketed
from evenkeel.spark.workers import in_workers

_FOLDER = re.compile(r"(?:data|nulls|_staging)-[0-9a-f]{12}")
_PART = re.compile(r"_[0-9a-f]{32}\.tmp")
OURS = re.compile(rf"{_FOLDER.pattern}|{_PART.pattern}|_evenkeel\.json|_writing\.json")
_STAGED = re.compile(r"part-(\d+)-.*\.parquet")
HERE_BYTES = 256 << 20
"""Up to this much on this machine is summed up here; more of it, or a store, is left to Spark's tasks."""
FIELDS = "path string, bucket int, shard int, rows long, bytes long, key_bytes long, crc long"


def place(
    spark: SparkSession, store: Store, staging: str, run: str, made: TableMeta, layout: BucketLayout
) -> tuple[DataFile, ...]:
    """Move what was staged to where it stays. Only a commit makes it visible."""
    units = layout.units()
    moves = []
    staged = store.sizes(staging)
    for name in sorted(staged):
        found = _STAGED.fullmatch(name)
        if found is not None:
            bucket, shard = units[int(found[1])]
            target = f"{folder_of(bucket, shard, run)}/{file_name(bucket, shard, run)}"
            moves.append((f"{staging}/{name}", target, bucket, shard))
    if not moves:  # Spark writes a file even where a table is empty
        raise NotBucketed.not_seen(store.path, store.url(staging))
    for folder in {m[1].rsplit("/", 1)[0] for m in moves}:
        store.fs.create_dir(store.where(folder), recursive=True)
    if store.local and sum(staged.values()) <= HERE_BYTES:
        return _present([_place(store, s, t, b, n, made.names) for s, t, b, n in moves])
    path, key = store.path, made.names

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = Store(path)
        for batch in batches:
            done = [_place(there, r["source"], r["target"], r["bucket"], r["shard"], key) for r in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist([vars(d) for d in done], schema=arrow_fields())

    names = ["source", "target", "bucket", "shard"]
    listed = pa.table(dict(zip(names, map(list, zip(*moves, strict=True)), strict=True)))
    rows = in_workers(spark.createDataFrame(listed), each, FIELDS).toArrow().to_pylist()
    return _present([DataFile(**row) for row in rows])


def folder_of(bucket: int, shard: int, run: str) -> str:
    """The first shards of all buckets together, the second ones together: each such layer is a bucketed table."""
    return f"nulls-{run}" if bucket == NULL_BUCKET else f"data-{run}/{SHARD}={shard}"


def file_name(bucket: int, shard: int, run: str) -> str:
    """Bucket and shard in words; and behind the underscore the bucket as Spark's bucketed scan looks for it."""
    if bucket == NULL_BUCKET:
        return f"bucket-null-shard-{shard:03d}-{run}.snappy.parquet"
    return f"bucket-{bucket:05d}-shard-{shard:03d}-{run}_{bucket:05d}.c000.snappy.parquet"


def arrow_fields() -> pa.Schema:
    text, whole = pa.string(), pa.int64()
    kinds = [text, pa.int32(), pa.int32(), whole, whole, whole, whole]
    return pa.schema(list(zip(DataFile.__dataclass_fields__, kinds, strict=True)))


def _place(store: Store, source: str, target: str, bucket: int, shard: int, key: tuple[str, ...]) -> DataFile:
    store.move(source, target)
    if store.local and store.exists(sums_of(source)):  # they go along: Spark compares them when it reads
        store.move(sums_of(source), sums_of(target))
    return store.describe(target, bucket, shard, key)


def _present(files: list[DataFile]) -> tuple[DataFile, ...]:
    """Spark writes an empty file where a table is empty."""
    return tuple(sorted((f for f in files if f.rows), key=lambda f: (f.bucket, f.shard, f.path)))


def folders(meta: TableMeta | None) -> set[str]:
    return {f.path.split("/")[0] for f in meta.files} if meta is not None else set()


def clean(store: Store, meta: TableMeta) -> None:
    """Remove what neither this generation nor the one before needs, such as the leavings of a writer that died."""
    needed = folders(meta) | set(meta.retired)
    for name in store.names():
        if _FOLDER.fullmatch(name) and name not in needed:
            store.drop(name)
        elif _PART.fullmatch(name):
            store.fs.delete_file(store.where(name))


@contextmanager
def undone(store: Store, run: str) -> Iterator[None]:
    """What a run has placed goes again where it fails before its commit: a full disk would stay full.

    Only on this machine: whether a store has taken a commit that failed, nobody knows.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError, EvenkeelError):
            placed = {f"data-{run}", f"nulls-{run}"}
            if store.local and not placed & folders(store.find_meta()):
                for name in placed:
                    store.drop(name)
        raise
