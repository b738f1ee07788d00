"""Parallel Stream-Sample: the exact number of pairs and an even sample of them, without forming the join.

    keys of both inputs -- regions of equal input (m_bucket) -- one exchange -- each region counts its pairs by two
    binary searches a key and draws some evenly -- the driver keeps of each region's draw what its share of m asks for

Invariant: a pair is in one region, so the sum of the regions' counts is m, and a pair drawn from a region that was
chosen in proportion to its count is drawn evenly from all. Cost: one shuffle of the keys alone.
Source: Squall, section 4.4.1. For inputs whose keys the driver can sort the same is done there (`RangeStats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from evenkeel.schemes import Problem, scheme_named
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import key_sql, route
from evenkeel.spark.workers import in_workers
from evenkeel.stats import Axis, Drawn, JoinStats, RangeStats
from evenkeel.types import SIDES, Exact, Int64, Side

SCHEMA = "m double, h array<bigint>, x array<double>, y array<double>"


def stream_sample(
    join: BoundJoin, stats: JoinStats, ranges: RangeStats, workers: int, stable: dict[Side, bool], size: int
) -> RangeStats:
    """The same statistics with m exact and pairs drawn from the whole output."""
    layout = scheme_named("m_bucket").fit(Problem(stats, "inner", workers, bool(join.condition.equi), ranges=ranges))
    parts = []
    for side in SIDES:
        routed = route(join, side, layout, stable[side], keep_nulls=False, hash_bits=False)
        x = F.expr(join.condition.spans[0].sql(side)).alias("x")
        h = F.expr(key_sql(join, side) if join.condition.equi else "0L").alias("h")
        tag = F.col(routed.region).alias("region"), F.lit(SIDES.index(side)).alias("side")
        parts.append(routed.df.select(*tag, h, x))
    both = parts[0].unionAll(parts[1]).repartitionById(workers, F.col("region"))
    count = _counter(ranges.lo, ranges.hi, ranges.slack, bool(join.condition.equi), size)
    found = in_workers(both, count, SCHEMA).toArrow()
    m = np.array(found["m"].to_pylist(), dtype=np.float64)
    if not len(m) or m.sum() == 0:
        none = np.empty(0)
        return replace(ranges, drawn=Drawn(0.0, none.astype(np.int64), none, none))
    rng = np.random.default_rng(ranges.seed)
    wanted = rng.multinomial(size, m / m.sum())
    kept = []
    for i, n in enumerate(wanted):
        drawn = [np.asarray(found[c][i].values) for c in ("h", "x", "y")]
        some = rng.permutation(len(drawn[0]))[:n]
        kept.append([v[some] for v in drawn])
    columns = [np.concatenate(c) for c in zip(*kept, strict=True)]
    return replace(ranges, drawn=Drawn(float(m.sum()), columns[0].astype(np.int64), columns[1], columns[2]))


def _counter(
    lo: float, hi: float, slack: float, equi: bool, size: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = [b for b in batches if len(b)]
        if not read:
            return
        table = pa.Table.from_batches(read)
        side, h, x = (table[c].to_numpy() for c in ("side", "h", "x"))
        axes = []
        for s in (0, 1):
            mine: Int64 | None = h[side == s] if equi else None
            rows = Exact(float(np.count_nonzero(side == s)))
            axes.append(Axis.of(mine, x[side == s], rows, Exact(0.0)))
        here = RangeStats(axes[0], axes[1], lo, hi, slack, seed=int(table["region"][0].as_py()))
        left, right = here.sample_pairs(size)
        hashes = axes[0].hash[left] if axes[0].hash is not None else np.zeros(len(left), dtype=np.int64)
        out = {"m": [here.pair_count], "h": [hashes], "x": [axes[0].x[left]], "y": [axes[1].x[right]]}
        kinds = [pa.float64(), pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.float64())]
        yield pa.record_batch([pa.array(v, k) for v, k in zip(out.values(), kinds, strict=True)], names=list(out))

    return counted
