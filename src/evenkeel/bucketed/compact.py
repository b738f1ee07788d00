"""Compaction: the sorted files of every shard are merged into one, task by task, without a shuffle.

After appends a shard has a file for each of them. Merging them gives Spark's own scan, which wants one file a shard,
its way again. Memory: a batch a file. The new files are committed as a write is: all or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from evenkeel.bucketed import finish
from evenkeel.bucketed.metadata import NULL_BUCKET, DataFile, TableMeta, Unit
from evenkeel.bucketed.sorted_files import read_sorted
from evenkeel.bucketed.store import Store
from evenkeel.bucketed.table import BucketedTable
from evenkeel.bucketed.write import Progress
from evenkeel.errors import IncompatibleTables
from evenkeel.spark.workers import in_workers

ROW_GROUP_BYTES = 64 << 20


def compact(spark: SparkSession, path: str | os.PathLike[str], *, progress: Progress | None = None) -> BucketedTable:
    """Merge the files of every shard into one, all in one folder; a table without appended files is left as it is."""
    store = Store.at(path)
    old = store.read_meta()
    runs = {f.path.split("/")[0] for f in old.files if f.bucket != NULL_BUCKET}
    if len(runs) <= 1 and all(len(u.files) == 1 for u in old.units):
        return BucketedTable(store.path, old)
    tell: Progress = progress or (lambda step: None)
    mine = store.begin()
    try:
        tell("announced")
        run = uuid4().hex[:12]
        with finish.undone(store, run):
            files = _merge_all(spark, store, old, run)
            tell("placed")
            now = store.find_meta()
            if now is None or now.generation != old.generation:
                raise IncompatibleTables.changed(store.path)
            meta = old.after(files=files, retired=tuple(sorted(finish.folders(old))))
            store.commit(meta)
        tell("committed")
        finish.clean(store, meta)
        tell("cleaned")
        return BucketedTable(store.path, meta)
    finally:
        store.end(mine)


def _merge_all(spark: SparkSession, store: Store, old: TableMeta, run: str) -> tuple[DataFile, ...]:
    units = sorted(old.units, key=lambda u: -u.bytes)
    for folder in {finish.folder_of(u.bucket, u.shard, run) for u in units}:
        store.fs.create_dir(store.where(folder), recursive=True)
    path, key = store.path, old.names

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = Store(path)
        for batch in batches:
            done = [_merge(there, units[i], key, run) for i in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pylist([vars(d) for d in done], schema=finish.arrow_fields())

    made = in_workers(spark.range(0, len(units), 1, len(units)), each, finish.FIELDS).toArrow().to_pylist()
    return tuple(sorted((DataFile(**m) for m in made), key=lambda f: (f.bucket, f.shard)))


def _merge(store: Store, unit: Unit, key: tuple[str, ...], run: str) -> DataFile:
    folder = finish.folder_of(unit.bucket, unit.shard, run)
    name = f"{folder}/{finish.file_name(unit.bucket, unit.shard, run)}"
    # An attempt that was given up may still be writing: each has a name of its own until it is done.
    part = f"{folder}/.{uuid4().hex}.part"
    store.check(unit.files[0])
    with store.open(unit.files[0]) as source:
        columns = pq.read_schema(source).names
    writer: pq.ParquetWriter | None = None
    with store.fs.open_output_stream(store.where(part)) as out:
        for chunk in read_sorted(store, unit.files, columns, key):
            if writer is None:
                writer = pq.ParquetWriter(
                    out, chunk.rows.schema, compression="snappy", write_page_checksum=True, store_schema=False
                )
            writer.write_batch(chunk.rows, row_group_size=_group_rows(chunk.rows))
        if writer is not None:
            writer.close()
    store.fs.move(store.where(part), store.where(name))
    if store.local:
        store.sum_up(name)
    return store.describe(name, unit.bucket, unit.shard, key)


def _group_rows(batch: pa.RecordBatch) -> int:
    return max(1024, int(ROW_GROUP_BYTES * batch.num_rows / max(1, batch.nbytes)))
