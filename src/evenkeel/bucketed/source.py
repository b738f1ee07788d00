"""The Spark data source `evenkeel`: a join by buckets, planned from metadata, merged in Python workers, in Arrow.

    spark.read.format("evenkeel").option("left", ..).option("right", ..).option("how", "left").load()
    spark.read.format("evenkeel").load(path)       one table

Options: left, right, how, columns (names of the result, a JSON list), suffixes (a JSON list of two), parallelism,
pushdown (true: filters on the key skip row groups; Spark wants `spark.sql.python.filterPushdown.enabled` with it, and
refuses a reader that takes filters without it).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from evenkeel.bucketed.columns import OutColumn, picked, result_columns
from evenkeel.bucketed.metadata import TableMeta
from evenkeel.bucketed.pair import PairPlan, Task, null_tasks, pack, resolve
from evenkeel.bucketed.run import run_task
from evenkeel.bucketed.sorted_files import Between
from evenkeel.bucketed.store import Store
from evenkeel.errors import BrokenTable, UnusableBuckets
from evenkeel.spark.workers import briskly
from evenkeel.types import How, Side, parse_how, parse_suffixes

LOWEST, HIGHEST = -(2**63), 2**63 - 1
PARALLELISM = 32
"""Partitions to make if the caller does not say, where there is enough to read."""


@dataclass(frozen=True)
class Request:
    """What the options ask for."""

    left: str
    right: str | None
    how: How
    columns: tuple[str, ...] | None
    suffixes: tuple[str, str]
    parallelism: int
    groups: tuple[int, ...] | None
    """Of these groups of buckets only; rows with a NULL key come along."""
    generations: tuple[int, int] | None
    """The commits that the rest of a plan was made from."""
    timings: str | None
    """A folder for the CPU seconds of every partition, for benchmarks."""
    pushdown: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Request:
        given = {k.lower(): v for k, v in options.items()}
        left, right, path = (given.get(k) for k in ("left", "right", "path"))
        if path is not None and left is None and right is None:
            left = path
        elif left is None or right is None or path is not None:
            raise UnusableBuckets.options(", ".join(f"'{k}'" for k in given) or "no options")

        def listed(name: str) -> Any:
            try:
                found = json.loads(given[name]) if name in given else None
            except ValueError:
                found = given[name]
            if found is not None and not isinstance(found, list):
                raise UnusableBuckets.option(name, given[name], 'a JSON list such as \'["id", "name"]\'')
            return found

        columns, groups, generations = listed("columns"), listed("groups"), listed("generations")
        suffixes = parse_suffixes(listed("suffixes") or ("", "_r"))
        parallelism = given.get("parallelism", str(PARALLELISM))
        if not parallelism.isdecimal() or int(parallelism) < 1:
            raise UnusableBuckets.option("parallelism", parallelism, "a whole number from 1 on")
        how = parse_how(given.get("how", "inner"))
        if how == "cross":
            raise UnusableBuckets.cross()
        return cls(
            left, right, how,
            None if columns is None else tuple(columns),
            suffixes,
            int(parallelism),
            None if groups is None else tuple(groups),
            None if generations is None else (generations[0], generations[1]),
            given.get("timings"),
            given.get("pushdown", "false").lower() == "true",
        )  # fmt: skip


class EvenkeelSource(DataSource):  # type: ignore[misc]
    """Registered with `spark.dataSource.register`, or found by Spark through the package `pyspark_evenkeel`."""

    @classmethod
    def name(cls) -> str:
        return "evenkeel"

    def schema(self) -> StructType:
        request = Request.of(self.options)
        metas = _metas(request)
        return result_schema(metas, _columns(request, metas))

    def reader(self, schema: StructType) -> DataSourceReader:
        request = Request.of(self.options)
        return (FilteringReader if request.pushdown else EvenkeelReader)(request, schema)


@dataclass(frozen=True)
class Part(InputPartition):  # type: ignore[misc]
    number: int
    tasks: tuple[Task, ...]


class EvenkeelReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, request: Request, schema: StructType) -> None:
        self._request = request
        self._metas = _metas(request)
        self._columns = _columns(request, self._metas)
        self._schema = schema
        if _shape(schema) != _shape(result_schema(self._metas, self._columns)):
            raise BrokenTable.changed_since("' or '".join(p for p in (request.left, request.right) if p))
        self._between: Between | None = None

    def partitions(self) -> list[InputPartition]:
        plan = planned(self._request, self._metas)
        return [Part(i, tasks) for i, tasks in enumerate(plan.partitions)] or [Part(0, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        keys = {s: m.names for s, m in self._metas.items()}
        reading = Reading(self._request, keys, self._columns, self._schema, self._between)
        return briskly(reading.part(partition.number, partition.tasks))


class FilteringReader(EvenkeelReader):
    """Row groups that hold no key of the wanted range are not read, on neither side.

    A row of the result has the key of the rows it is made of, so for every join type what is skipped could only have
    given rows that the filter drops. Spark evaluates the filters all the same: a range may hold other keys too.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        shown = [c.name for c in self._columns if c.source in self._metas["left"].names and c.side == "left"]
        if len(self._metas["left"].names) == 1 and shown:
            ranges = [r for r in (_range(f, shown[0]) for f in filters) if r is not None]
            self._between = (max((r[0] for r in ranges), default=LOWEST), min((r[1] for r in ranges), default=HIGHEST))
        yield from filters


def _range(f: Filter, column: str) -> Between | None:
    """The whole numbers that a filter on the key leaves; None where it is about something else."""
    if getattr(f, "attribute", None) != (column,):
        return None
    values: tuple[Any, ...] = f.value if isinstance(f, In) else (getattr(f, "value", None),)
    if not values or any(type(v) is not int for v in values):
        return None
    if isinstance(f, (EqualTo, In)):
        return min(values), max(values)
    if isinstance(f, (GreaterThan, GreaterThanOrEqual)):
        return values[0] + isinstance(f, GreaterThan), HIGHEST
    if isinstance(f, (LessThan, LessThanOrEqual)):
        return LOWEST, values[0] - isinstance(f, LessThan)
    return None


@dataclass(frozen=True)
class Reading:
    """What a Python worker needs to know to run tasks."""

    request: Request
    keys: Mapping[Side, tuple[str, ...]]
    columns: tuple[OutColumn, ...]
    schema: StructType
    between: Between | None = None
    """Only keys in this range are wanted."""

    def part(self, number: int, tasks: tuple[Task, ...]) -> Iterator[pa.RecordBatch]:
        left, right = self.request.left, self.request.right
        stores: dict[Side, Store] = {"left": Store.at(left), "right": Store.at(right or left)}
        schema = to_arrow_schema(self.schema, timezone="UTC")
        pa.set_cpu_count(1)  # a task has one core
        begun = time.process_time()
        for task in tasks:
            yield from run_task(task, stores, self.keys, self.columns, schema, self.between)
        if self.request.timings is not None:
            spent = {"partition": number, "cpu": time.process_time() - begun, "rss": _peak_bytes()}
            with open(os.path.join(self.request.timings, f"{number}.json"), "w") as out:
                json.dump(spent, out)


def planned(request: Request, metas: Mapping[Side, TableMeta]) -> PairPlan:
    left, right = metas["left"], metas["right"]
    if request.right is None:
        tasks = [Task("left", "outer", u.files, (), True, u.bucket) for u in left.units]
        return PairPlan(tuple(tasks), pack(tasks, request.parallelism), left.buckets, left.bytes)
    if request.groups is None:
        return resolve(left, right, request.how, request.parallelism)
    plan = resolve(left, right, request.how, request.parallelism, request.groups)
    tasks = sorted([*plan.tasks, *null_tasks(left, right, request.how)], key=lambda t: -t.cost)
    return PairPlan(tuple(tasks), pack(tasks, request.parallelism), plan.common_factor, plan.table_bytes)


def result_schema(metas: Mapping[Side, TableMeta], columns: tuple[OutColumn, ...]) -> StructType:
    kinds = {s: {f.name: f.dataType for f in spark_schema(m)} for s, m in metas.items()}
    return StructType([StructField(c.name, kinds[c.side][c.source], True) for c in columns])


def spark_schema(meta: TableMeta) -> StructType:
    return StructType.fromJson(json.loads(meta.schema))


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in schema]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("evenkeel")` known to a session."""
    spark.dataSource.register(EvenkeelSource)


def _metas(request: Request) -> dict[Side, TableMeta]:
    paths = (request.left, request.right or request.left)
    left, right = (Store.at(p).read_meta() for p in paths)
    left.require_compatible(right, *paths)
    for path, meta, generation in zip(paths, (left, right), request.generations or (None, None), strict=True):
        if generation is not None and meta.generation != generation:
            raise BrokenTable.changed_since(path)
    return {"left": left, "right": right}


def _columns(request: Request, metas: Mapping[Side, TableMeta]) -> tuple[OutColumn, ...]:
    if request.right is None:
        return picked([OutColumn(n, "left", n) for n in metas["left"].columns], request.columns)
    return result_columns(metas["left"], metas["right"], request.how, request.suffixes, request.columns)


def _peak_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
