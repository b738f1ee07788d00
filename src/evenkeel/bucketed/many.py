"""`join_many`: several tables on one key. A task drives one shard through a merge with each of the others.

A merge hands on its rows in the driver's order, so its output drives the next one: nothing is held, nothing is
sorted, no result in between is written. The first table drives, except that for an inner join the largest one does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from evenkeel.bucketed.merge import Picks, merge, picked
from evenkeel.bucketed.metadata import NULL_BUCKET, DataFile, TableMeta
from evenkeel.bucketed.pair import Mode, Task, pack
from evenkeel.bucketed.run import place
from evenkeel.bucketed.sorted_files import Chunk, comparable, read_sorted
from evenkeel.bucketed.source import spark_schema
from evenkeel.bucketed.spark_partitions import parallelism
from evenkeel.bucketed.store import Store
from evenkeel.errors import AmbiguousColumn, UnknownOption, UnusableBuckets
from evenkeel.spark.workers import in_workers
from evenkeel.types import How, parse_how

MODES: dict[How, Mode] = {"inner": "inner", "left": "outer", "left_semi": "semi", "left_anti": "anti"}


@dataclass(frozen=True)
class Source:
    """A column of the result: of which table, and its name there."""

    name: str
    table: int
    column: str


def join_many(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    how: str = "inner",
) -> DataFrame:
    """Join two or more bucketed tables by their keys without a shuffle, as `t1 how t2 how t3 ..`.

    how  inner; left: the first table's rows are kept; left_semi, left_anti: those with a match in all, or in none

    A column name that an earlier table has gets the table's place as a suffix: `name_2`, `name_3`.
    """
    joined = parse_how(how)
    if joined not in MODES:
        raise UnknownOption.of("join of many tables", how, MODES)
    if isinstance(paths, (str, os.PathLike)) or len(paths) < 2:
        raise UnusableBuckets.too_few(1 if isinstance(paths, (str, os.PathLike)) else len(paths))
    stores = [Store.at(p) for p in paths]
    metas = [s.read_meta() for s in stores]
    for store, meta in zip(stores[1:], metas[1:], strict=True):
        metas[0].require_compatible(meta, stores[0].path, store.path)
    columns = _columns(metas, joined)
    kinds = [{f.name: f.dataType for f in spark_schema(m)} for m in metas]
    schema = StructType([StructField(c.name, kinds[c.table][c.column], True) for c in columns])
    first = max(range(len(metas)), key=lambda i: metas[i].bytes) if joined == "inner" else 0
    order = [first, *(i for i in range(len(metas)) if i != first)]
    tasks = _tasks([metas[i] for i in order], joined)
    parts = pack(tasks, parallelism(spark)) or ((),)
    names = [m.names for m in metas]
    where = [s.path for s in stores]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = [Store(p) for p in where]
        arrow = to_arrow_schema(schema, timezone="UTC")
        pa.set_cpu_count(1)
        for batch in batches:
            for i in batch.column(0).to_pylist():
                for task in parts[i]:
                    yield from _run(task, there, names, order, columns, arrow)

    return in_workers(spark.range(0, len(parts), 1, len(parts)), each, schema)


def _columns(metas: Sequence[TableMeta], how: How) -> list[Source]:
    out = [Source(n, 0, n) for n in metas[0].names]
    used = {s.name.lower() for s in out}
    for i, meta in enumerate(metas[:1] if how in ("left_semi", "left_anti") else metas):
        for column in (c for c in meta.columns if c not in meta.names):
            name = f"{column}_{i + 1}" if column.lower() in used else column
            if name.lower() in used:
                raise AmbiguousColumn.in_result(name, ("", f"_{i + 1}"))
            used.add(name.lower())
            out.append(Source(name, i, column))
    return out


def _tasks(metas: Sequence[TableMeta], how: How) -> list[Task]:
    """One a shard of the driving table; its partners are, table by table, the shards that its keys can be in."""
    out = []
    for unit in metas[0].units:
        partners: list[tuple[DataFile, ...]] = []
        for meta in metas[1:]:
            c = gcd(metas[0].buckets, meta.buckets)
            met = [u for u in meta.units if u.bucket != NULL_BUCKET and u.bucket % c == unit.bucket % c]
            partners.append(() if unit.bucket == NULL_BUCKET else tuple(f for u in met for f in u.files))
        if how in ("inner", "left_semi") and not all(partners):
            continue
        out.append(Task("left", MODES[how], unit.files, tuple(partners), how in ("left_semi", "left_anti"), 0))
    return out


def _run(
    task: Task,
    stores: Sequence[Store],
    keys: Sequence[tuple[str, ...]],
    order: Sequence[int],
    columns: Sequence[Source],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Columns travel under the number of their place in the result; the key under `k0`, `k1`, .. beside them."""
    first = order[0]
    wanted = [c.column for c in columns if c.table == first]
    stream = read_sorted(stores[first], task.driver, list(dict.fromkeys([*wanted, *keys[first]])), keys[first])
    travelling = [f"k{i}" for i in range(len(keys[0]))]
    have = [i for i, c in enumerate(columns) if c.table == first and i >= len(travelling)]

    def named(chunk: Chunk) -> Chunk:
        picked = [chunk.rows.column(k) for k in keys[first]] + [chunk.rows.column(columns[i].column) for i in have]
        return Chunk(pa.RecordBatch.from_arrays(picked, names=[*travelling, *map(str, have)]), chunk.keys)

    chunks: Iterator[Chunk] = map(named, stream)
    for table, files in zip(order[1:], task.partners, strict=True):
        own = [] if task.keys_only else [i for i, c in enumerate(columns) if c.table == table and i >= len(travelling)]
        chunks = _step(chunks, stores[table], files, keys[table], own, columns, schema, task, travelling)
    for chunk in chunks:
        arrays = [chunk.rows.column(n) for n in [*travelling, *(str(i) for i in range(len(travelling), len(columns)))]]
        yield place(arrays, schema)


def _step(
    driver: Iterator[Chunk],
    store: Store,
    files: tuple[DataFile, ...],
    key: tuple[str, ...],
    own: list[int],
    columns: Sequence[Source],
    schema: pa.Schema,
    task: Task,
    travelling: list[str],
) -> Iterator[Chunk]:
    wanted = list(dict.fromkeys(columns[i].column for i in own))
    partner = read_sorted(store, files, wanted, key, task.keys_only) if files else iter(())

    def emit(
        rows: pa.RecordBatch, picks: Picks, matched: pa.RecordBatch | None, which: np.ndarray[Any, Any] | None
    ) -> pa.RecordBatch:
        kept = picked(rows, picks)
        arrays, names = list(kept.columns), list(kept.schema.names)
        at = None if which is None else pa.array(which, mask=which < 0)
        for i in own:
            if matched is None or at is None:
                arrays.append(pa.nulls(kept.num_rows, schema.field(i).type))
            else:
                arrays.append(matched.column(columns[i].column).take(at))
            names.append(str(i))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    for batch in merge(driver, partner, task.mode, emit):
        yield Chunk(batch, tuple(comparable(batch.column(k)) for k in travelling))
