"""Statistics as native aggregates: one pass over the key columns of each input, both inputs at once.

`approx_top_k` finds the frequent keys (a Misra-Gries style sketch of bounded size that reports no key it is not
sure of), `count` and `approx_count_distinct` the sizes. Large inputs are sampled row by row, at a rate chosen from
Spark's own size estimate: a plan needs shares of keys, not counts, and a few hundred thousand rows give those.
The driver receives at most TOP keys a side, however many there are.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel import hashing
from evenkeel.schemes.equi_weight import MOST_BUCKETS, input_sample_size
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import key_sql
from evenkeel.spark.inputs import size_in_bytes
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.types import SIDES, Absent, Exact, Inexact, Precision, Side

TOP = 4096
TRACKED = 16384
SAMPLE_ROWS = 300_000
"""With half of it regions weigh as much alike for 64 workers, but one of them took nearly twice its time (ADR 52)."""
DRIVER_ROWS = 8_000_000
"""Keys of an input that the driver sorts: 64 MB, twice that with an equality. Larger inputs are sampled."""
SEED = 20190415
_READABLE = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.DateType, T.TimestampType,
    T.TimestampNTZType, T.StringType,
)  # fmt: skip
"""Key types whose values `approx_top_k` gives back, so that `explain` can name the hot keys."""


def collect(join: BoundJoin, explained: dict[Side, str], row_bytes: dict[Side, float]) -> JoinStats:
    """Statistics of both inputs."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        tasks = {
            side: pool.submit(_collect_side, join, side, sample_rate(explained[side], row_bytes[side]))
            for side in SIDES
        }
        stats = {side: task.result() for side, task in tasks.items()}
    labels: dict[int, str] = {}
    for side in SIDES:
        s = stats[side]
        labels.update({int(k): v for k, v in zip(s.keys, s.labels, strict=False)})
    return JoinStats(stats["left"], stats["right"], time.perf_counter() - start, labels)


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
    return SideStats(rows, null_rows, Absent(), none, none.astype(float), (), True)


def _side_of(axis: Axis) -> SideStats:
    """What the keys in order say of each key alone."""
    if axis.hash is None:
        return _unkeyed(axis.rows, axis.null_rows)
    keys, counts = np.unique(axis.hash, return_counts=True)
    top = np.argsort(-counts, kind="stable")[: TOP + 1]
    total, nulls = round(axis.row_count * axis.fraction), round(axis.null_count * axis.fraction)
    return SideStats.from_sample(total, nulls, float(len(keys)), keys[top], counts[top], axis.fraction, ())


def _collect_axis(join: BoundJoin, side: Side, explained: str, row_bytes: float) -> Axis:
    df, rate = join.side(side), 1.0
    size = size_in_bytes(explained)
    if size is None or size / row_bytes > DRIVER_ROWS / 4:  # what is stored may be a quarter of what it unfolds to
        rows = df.count()
        rate = 1.0 if rows <= DRIVER_ROWS else min(DRIVER_ROWS, input_sample_size(rows, MOST_BUCKETS)) / rows
    if rate < 1.0:
        df = df.sample(fraction=rate, seed=SEED)
    x = join.condition.spans[0].sql(side) if join.condition.spans else "0D"
    columns = [F.expr(x).alias("x")]
    if join.condition.equi:
        columns.append(F.expr(key_sql(join, side)).alias("h"))
    table = df.select(*columns).toArrow()
    valid = pc.is_valid(table["x"])
    if join.condition.equi:
        valid = pc.and_(valid, pc.is_valid(table["h"]))
    keyed = table.filter(valid)
    hashes = keyed["h"].to_numpy() if join.condition.equi else None
    total, nulls = float(len(table)), float(len(table) - len(keyed))
    if rate < 1.0:
        return Axis.of(hashes, keyed["x"].to_numpy(), Exact(float(rows)), Inexact(nulls / rate), rate)
    return Axis.of(hashes, keyed["x"].to_numpy(), Exact(total), Exact(nulls))


def sample_rate(explained: str, row_bytes: float) -> float:
    """Which part of the rows to read: all of a small input, and of one whose size nobody knows."""
    size = size_in_bytes(explained)
    if size is None:
        return 1.0
    rows = size / row_bytes
    return 1.0 if rows <= 1.5 * SAMPLE_ROWS else SAMPLE_ROWS / rows


def _readable(join: BoundJoin) -> bool:
    if len(join.key_types) != 1 or join.condition.equi[0].null_safe:
        return False
    return isinstance(join.key_types[0], _READABLE)


def _collect_side(join: BoundJoin, side: Side, rate: float) -> SideStats:
    readable = _readable(join)
    item = join.key_columns(side)[0] if readable else key_sql(join, side)
    df = join.side(side)
    if rate < 1.0:
        df = df.sample(fraction=rate, seed=SEED)
    aggregates = (
        F.expr(f"approx_top_k(item, {TOP + 1}, {TRACKED})").alias("top"),
        F.count(F.lit(1)).alias("rows"),
        F.count("item").alias("keyed"),
        F.approx_count_distinct("item").alias("distinct"),
    )
    row = df.select(F.expr(item).alias("item")).agg(*aggregates).toArrow()
    top = row["top"].combine_chunks()
    entries = top.flatten() if top.null_count == 0 else top.values.slice(0, 0)
    entries = entries.filter(entries.field("item").is_valid())
    values, counts = entries.field("item"), np.asarray(entries.field("count"), dtype=np.int64)
    if not len(values):
        keys = np.empty(0, dtype=np.int64)
    else:
        keys = hashing.xxhash64([values]) if readable else np.asarray(values.cast(pa.int64()))
    total, keyed = row["rows"][0].as_py(), row["keyed"][0].as_py()
    labels = _labels(values) if readable else ()
    return SideStats.from_sample(
        total, total - keyed, float(row["distinct"][0].as_py()), keys, counts, rate, labels
    )


def _labels(values: pa.Array) -> tuple[str, ...]:
    """Keys as text; none where Python cannot show one (a year beyond 9999, broken UTF-8, an unknown zone)."""
    try:
        return tuple(str(v) for v in values.to_pylist())
    except (OverflowError, ValueError, KeyError):
        return ()
