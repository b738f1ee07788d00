"""Statistics read the key columns of both inputs at once: a bounded sample, or native aggregates over every row.

Keys of Parquet files on this machine are read from them (`parquet_keys.py`); those of everything else by Spark.
Where Spark has an idea of an input's size, the driver receives the hashes of a few hundred thousand keys and counts
them: a plan needs shares of keys, not counts. Where it has none (the result of a join, above all), or one that is of no
use, the keys are counted where they are: `approx_top_k` finds the frequent ones (a Misra-Gries style sketch of bounded
size that reports no key it is not sure of), `count` and `approx_count_distinct` the sizes. The driver receives TOP
keys, however many there are.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import functions as F

from evenkeel.schemes.equi_weight import MOST_BUCKETS, input_sample_size
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import key_sql
from evenkeel.spark.inputs import row_estimate, size_in_bytes
from evenkeel.spark.labels import readable, text_sql
from evenkeel.spark.parquet_keys import read_keys
from evenkeel.spark.sampling import draw, sample
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.types import SIDES, Absent, Exact, Inexact, Int64, Precision, Side

TOP = 4096
TRACKED = 16384
SAMPLE_ROWS = 150_000
"""Twice as many make regions no more alike for 64 workers, half as many leave one of them 1.16 x the mean (ADR 53)."""
FILE_SAMPLE_ROWS = 300_000
"""Of keys that are decoded anyway."""
DRIVER_ROWS = 8_000_000
"""Keys of an input that the driver sorts: 64 MB, twice that with an equality. Larger inputs are sampled."""


def collect(join: BoundJoin, explained: dict[Side, str], row_bytes: dict[Side, float]) -> JoinStats:
    """Statistics of both inputs."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(lambda s: _look_at(join, s, explained[s], row_bytes[s]), SIDES)
    return JoinStats(left, right, time.perf_counter() - start)


def collect_ranges(
    join: BoundJoin, explained: dict[Side, str], row_bytes: dict[Side, float]
) -> tuple[JoinStats, RangeStats]:
    """The keys of both inputs in order, and the statistics of their equalities."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        tasks = {s: pool.submit(_collect_axis, join, s, explained[s], row_bytes[s]) for s in SIDES}
        axes = {side: task.result() for side, task in tasks.items()}
    span = join.condition.spans[0] if join.condition.spans else None
    lo, hi, slack = (span.lo, span.hi, span.slack) if span is not None else (0.0, 0.0, 0.0)
    ranges = RangeStats(axes["left"], axes["right"], lo, hi, slack)
    left, right = (_side_of(axes[s]) for s in SIDES)
    return JoinStats(left, right, time.perf_counter() - start), ranges


def collect_sizes(join: BoundJoin) -> JoinStats:
    """How many rows there are: all that is worth knowing when nothing in the condition can be routed by."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(lambda s: _unkeyed(Exact(float(join.side(s).count())), Exact(0.0)), SIDES)
    return JoinStats(left, right, time.perf_counter() - start)


def _unkeyed(rows: Precision, null_rows: Precision) -> SideStats:
    none = np.empty(0, dtype=np.int64)
    return SideStats(rows, null_rows, Absent(), none, none.astype(float), True)


def _side_of(axis: Axis) -> SideStats:
    """What the keys in order say of each key alone."""
    if axis.hash is None:
        return _unkeyed(axis.rows, axis.null_rows)
    keys, counts = np.unique(axis.hash, return_counts=True)
    top = np.argsort(-counts, kind="stable")[: TOP + 1]
    total, nulls = round(axis.row_count * axis.fraction), round(axis.null_count * axis.fraction)
    return SideStats.from_sample(total, nulls, float(len(keys)), keys[top], counts[top], axis.fraction)


def _collect_axis(join: BoundJoin, side: Side, explained: str, row_bytes: float) -> Axis:
    df, rows, drawn = join.side(side), 0, None
    columns = [f"{join.condition.spans[0].sql(side) if join.condition.spans else '0D'} AS x"]
    if join.condition.equi:
        columns.append(f"{key_sql(join, side)} AS h")
    size = size_in_bytes(explained)
    # What is stored may be a quarter of what it unfolds to.
    if size is not None and size / row_bytes <= DRIVER_ROWS / 4:
        drawn = draw(df, columns, 1.0, DRIVER_ROWS)
    if drawn is None or drawn.cut:
        rows = df.count()
        rate = 1.0 if rows <= DRIVER_ROWS else min(DRIVER_ROWS, input_sample_size(rows, MOST_BUCKETS)) / rows
        drawn = draw(df, columns, rate)
    table, rate = drawn.rows, drawn.rate
    valid = pc.is_valid(table["x"])
    if join.condition.equi:
        valid = pc.and_(valid, pc.is_valid(table["h"]))
    keyed = table.filter(valid)
    hashes = keyed["h"].to_numpy() if join.condition.equi else None
    total, nulls = float(len(table)), float(len(table) - len(keyed))
    if rate < 1.0:
        return Axis.of(hashes, keyed["x"].to_numpy(), Exact(float(rows)), Inexact(nulls / rate), rate)
    return Axis.of(hashes, keyed["x"].to_numpy(), Exact(total), Exact(nulls))


def _look_at(join: BoundJoin, side: Side, explained: str, row_bytes: float) -> SideStats:
    """The keys of files that can be read here; else Spark looks."""
    read = read_keys(join, side, explained, FILE_SAMPLE_ROWS)
    if read is None:
        return _collect_side(join, side, row_estimate(explained, row_bytes))
    return replace(_of_sample(read.rows, read.null_rows, read.hashes, read.counts, read.rate), numbers=read.numbers)


def _collect_side(join: BoundJoin, side: Side, expected: float | None) -> SideStats:
    drawn = sample(join.side(side), [f"{key_sql(join, side)} AS h"], expected, SAMPLE_ROWS)
    if drawn is None:
        return _aggregated(join, side)
    hashes = drawn.rows["h"].combine_chunks()  # NULL is no key
    counted = np.unique(np.asarray(hashes.drop_null()), return_counts=True)
    return _of_sample(len(hashes), hashes.null_count, *counted, drawn.rate)


def _of_sample(rows: int, nulls: int, keys: Int64, counts: Int64, rate: float) -> SideStats:
    """What the keys of a sample say, each of which is there once."""
    top = np.argpartition(-counts, TOP)[: TOP + 1] if len(counts) > TOP + 1 else slice(None)
    return SideStats.from_sample(rows, nulls, float(len(keys)), keys[top], counts[top], rate)


def _aggregated(join: BoundJoin, side: Side) -> SideStats:
    """Keys counted by Spark, in bounded memory however many there are."""
    aggregates = (
        f"approx_top_k(item, {TOP + 1}, {TRACKED}) AS top",
        "count(1) AS rows",
        "count(item) AS keyed",
        "approx_count_distinct(item) AS n_distinct",
    )
    row = join.side(side).selectExpr(f"{key_sql(join, side)} AS item").selectExpr(*aggregates).toArrow()
    top = row["top"].combine_chunks()
    entries = top.flatten() if top.null_count == 0 else top.values.slice(0, 0)
    entries = entries.filter(entries.field("item").is_valid())
    keys, counts = (np.asarray(entries.field(f), dtype=np.int64) for f in ("item", "count"))
    total, keyed, distinct = (row[c][0].as_py() for c in ("rows", "keyed", "n_distinct"))
    return SideStats.from_sample(total, total - keyed, float(distinct), keys, counts, 1.0)


def key_names(join: BoundJoin, side: Side, keys: list[int]) -> dict[int, str]:
    """Some keys as text, by their hash; without those that the side does not have."""
    if not keys:
        return {}
    texts = [text_sql(sql, kind) for sql, kind in zip(join.key_columns(side), join.key_types, strict=True)]
    found = join.side(side).selectExpr(f"{key_sql(join, side)} AS h", f"concat_ws(', ', {', '.join(texts)}) AS t")
    row = found.agg(*(F.max(F.when(F.col("h") == k, F.col("t"))).alias(str(i)) for i, k in enumerate(keys))).toArrow()
    names = {key: readable(row[i][0]) for i, key in enumerate(keys)}
    return {key: name for key, name in names.items() if name is not None}
