"""`ek.bucketed.join`: Spark's own merge where the layout allows it, the Arrow data source where shards meet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from evenkeel.bucketed import native
from evenkeel.bucketed.columns import OutColumn, result_columns
from evenkeel.bucketed.metadata import TableMeta
from evenkeel.bucketed.pair import PairPlan
from evenkeel.bucketed.source import Reading, Request, planned, result_schema
from evenkeel.bucketed.spark_partitions import parallelism
from evenkeel.bucketed.store import Store
from evenkeel.errors import UnusableBuckets
from evenkeel.spark.workers import in_workers
from evenkeel.types import SIDES, How, Side, parse_how, parse_suffixes

Path = str | os.PathLike[str]


def join(
    spark: SparkSession,
    left: Path,
    right: Path,
    how: str = "inner",
    *,
    suffixes: tuple[str, str] = ("", "_r"),
    columns: str | Sequence[str] | None = None,
) -> DataFrame:
    """Join two bucketed tables by their keys without a shuffle; the result is a plain, lazy DataFrame.

    how       inner, left, right, full, left_semi, left_anti, or a synonym that Spark knows
    suffixes  for column names that both tables have; the key appears once, under the left table's name
    columns   the columns of the result that are wanted; others are not read
    """
    return plan(spark, left, right, how, suffixes=suffixes, columns=columns).execute()


def plan(
    spark: SparkSession,
    left: Path,
    right: Path,
    how: str = "inner",
    *,
    suffixes: tuple[str, str] = ("", "_r"),
    columns: str | Sequence[str] | None = None,
) -> BucketJoinPlan:
    """How `join` would go about it, from metadata alone."""
    joined = parse_how(how)
    if joined == "cross":
        raise UnusableBuckets.cross()
    added = parse_suffixes(suffixes)
    stores: dict[Side, Store] = {"left": Store.at(left), "right": Store.at(right)}
    metas = {s: stores[s].read_meta() for s in SIDES}
    metas["left"].require_compatible(metas["right"], stores["left"].path, stores["right"].path)
    wanted = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    shown = result_columns(metas["left"], metas["right"], joined, added, wanted)
    return BucketJoinPlan(spark, stores, metas, joined, added, shown)


@dataclass(frozen=True)
class Native:
    """What is left to Spark's own scan and merge."""

    sides: dict[Side, native.NativeSide]
    groups: set[int]
    pairs: list[native.Layers]


@dataclass(frozen=True, eq=False, repr=False)
class BucketJoinPlan:
    """A planned join: look at it with explain(), run it with execute()."""

    spark: SparkSession
    stores: dict[Side, Store]
    metas: dict[Side, TableMeta]
    how: How
    suffixes: tuple[str, str]
    columns: tuple[OutColumn, ...]
    timings: str | None = None
    """A folder where Python workers leave their CPU seconds; benchmarks ask for it."""

    @cached_property
    def _native(self) -> Native | None:
        """Both folders, the buckets that Spark merges itself, and their layers."""
        groups = native.native_groups(self.metas["left"], self.metas["right"], self.how)
        if not groups or not native.can_run_here(self.spark):
            return None
        sides: dict[Side, native.NativeSide] = {}
        for s in SIDES:
            found = native.native_side(self.stores[s], self.metas[s])
            if found is None:
                return None
            sides[s] = found
        pairs = native.layers(sides, groups, self.how)
        if pairs is None:  # too many: the hottest are left to Arrow
            groups = {g for g in groups if all(len(self.metas[s].by_bucket.get(g, ())) <= 1 for s in SIDES)}
            pairs = native.layers(sides, groups, self.how)
        return Native(sides, groups, pairs) if pairs is not None and groups else None

    @property
    def native_buckets(self) -> int:
        return len(self._native.groups) if self._native is not None else 0

    @cached_property
    def _hot(self) -> tuple[int, ...]:
        """Groups of buckets that are merged in Arrow."""
        count = self.pairs.common_factor
        done = self._native.groups if self._native is not None else set()
        busy = {t.group for t in self.pairs.tasks}
        return tuple(g for g in range(count) if g not in done and g in busy)

    @cached_property
    def pairs(self) -> PairPlan:
        """All tasks, as if nothing were left to Spark."""
        return planned(self._request(None), self.metas)

    @property
    def _replicated_natively(self) -> int:
        """What layers read again of the other side's buckets."""
        if self._native is None:
            return 0
        units = (u for s in SIDES for g in self._native.groups for u in self.metas[s].by_bucket.get(g, ()))
        return max(0, sum(sum(p.loads.values()) for p in self._native.pairs) - sum(u.bytes for u in units))

    @cached_property
    def _merged_here(self) -> PairPlan:
        """The tasks that are left to the Arrow merge."""
        hot = set(self._hot)
        tasks = tuple(t for t in self.pairs.tasks if t.group in hot or self._native is None)
        return PairPlan(tasks, (), self.pairs.common_factor, self.pairs.table_bytes)

    @property
    def replicated_bytes(self) -> int:
        """What is read more than once, because a shard meets several of the other side."""
        return self._replicated_natively + self._merged_here.replicated_bytes

    def execute(self) -> DataFrame:
        """The result, lazily."""
        if self._native is None:
            return self._arrow(None)
        sides, groups, pairs = self._native.sides, self._native.groups, self._native.pairs
        merged = native.native_join(self.spark, sides, self.how, self.columns, groups, pairs)
        if merged is None:
            return self._arrow(None)
        if self._hot:
            return self._arrow(self._hot).unionAll(merged)  # the hot ones first: they take longest
        lone = native.null_rows(self.spark, self.stores, self.metas, self.how, self.columns)
        return merged if lone is None else merged.unionAll(lone)

    def _request(self, groups: tuple[int, ...] | None) -> Request:
        generations = (self.metas["left"].generation, self.metas["right"].generation)
        names = tuple(c.name for c in self.columns)
        return Request(
            self.stores["left"].path, self.stores["right"].path, self.how, names, self.suffixes,
            parallelism(self.spark), groups, generations, self.timings,
        )  # fmt: skip

    def _arrow(self, groups: tuple[int, ...] | None) -> DataFrame:
        """Partitions of a number each, turned into batches: what the data source does, with the plan made once."""
        request = self._request(groups)
        parts = planned(request, self.metas).partitions or ((),)
        schema = result_schema(self.metas, self.columns)
        read = Reading(request, {s: self.metas[s].names for s in SIDES}, self.columns, schema)

        def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for i in batch.column(0).to_pylist():
                    yield from read.part(i, parts[i])

        return in_workers(self.spark.range(0, len(parts), 1, len(parts)), each, schema)

    def explain(self) -> str:
        """Pairs, tasks, who reads what twice, and what is left to Spark."""
        left, right = self.metas["left"], self.metas["right"]
        lines = [f"{self.how} join by buckets on ({', '.join(left.names)}), no shuffle"]
        for s, m in zip(SIDES, (left, right), strict=True):
            cut = f", {len(m.sharded)} of them sharded" if m.sharded else ""
            lines.append(
                f"  {s:5s}  {self.stores[s].path}: {m.rows:,} rows, {m.bytes:,} bytes, {m.buckets} buckets{cut}, "
                f"{len(m.units)} shards"
            )
        lines.append(
            f"  common factor {self.pairs.common_factor}: "
            f"{left.buckets * right.buckets // self.pairs.common_factor} pairs of buckets"
        )
        if self._native is not None:
            lines.append(
                f"  {self.native_buckets} buckets in {len(self._native.pairs)} pairs of layers: Spark's own bucketed "
                f"scan and merge, no exchange, no sort, {self._replicated_natively:,} bytes replicated"
            )
        part = self._merged_here
        if part.tasks:
            costs = [t.bytes for t in part.tasks]
            kinds = {f"{t.drive} drives, {t.mode}" for t in part.tasks}
            lines.append(
                f"  {len(part.tasks)} tasks merged in Arrow ({'; '.join(sorted(kinds))}): {part.read_bytes:,} bytes "
                f"read, {part.replicated_bytes:,} of them replicated"
            )
            lines.append(f"  longest task {max(costs):,} bytes, mean {sum(costs) / len(costs):,.0f}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.explain()

