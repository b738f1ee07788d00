"""The load of every region, counted: by running the join, or key by key without forming a pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.batch.execute import region_join
from evenkeel.errors import NotMeasurable
from evenkeel.local import local_named
from evenkeel.plan import TwoWay
from evenkeel.report import LoadReport
from evenkeel.schemes import Layout
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import as_shipped, region_of, route
from evenkeel.spark.metrics import tagged, task_seconds
from evenkeel.types import SIDES, Float64


def measure_by_running(join: BoundJoin, plan: TwoWay) -> LoadReport:
    """Run the join inside its regions; time the tasks where Spark tells."""
    plan = _with_regions(plan)
    assert plan.chosen is not None
    layout, spark = plan.chosen.layout, join.left.sparkSession
    rows_in, input_rows = _rows_in(join, plan, layout)
    regions = region_join(join, plan, join.how)
    left, right = (region_of(r, layout.workers) for r in (regions.left, regions.right))
    region = left if join.how in ("left_semi", "left_anti") else f"coalesce({left}, {right})"
    with tagged(spark) as tag:
        counted = regions.joined.groupBy(F.expr(region).alias("region")).count().toArrow()
        seconds = task_seconds(spark, tag, layout.workers)
    rows_out = _by_region(counted["region"].to_numpy(), counted["count"].to_numpy(), layout.workers)
    return LoadReport(rows_in, rows_out, input_rows, seconds, f"measured, {plan.chosen.scheme}")


def measure_by_counting(join: BoundJoin, plan: TwoWay) -> LoadReport:
    """Count each key's rows in each region on both sides; their product is the number of pairs there."""
    if join.condition.residual:
        raise NotMeasurable.by_counting(join.condition.text)
    plan = _with_regions(plan)
    assert plan.chosen is not None
    layout = plan.chosen.layout
    rows_in, input_rows = _rows_in(join, plan, layout)
    counts = []
    for side in SIDES:
        routed = route(join, side, layout, plan.facts.stable_order[side], keep_nulls=False)
        keys = [F.col(c).alias(f"k{i}") for i, c in enumerate(join.key_columns(side))]
        grouped = routed.df.groupBy(F.expr(region_of(routed, layout.workers)).alias("region"), *keys)
        counts.append(grouped.agg(F.count(F.lit(1)).alias(f"n_{side}")))
    same = ["region = region_"] + [f"k{i} <=> k{i}_" for i in range(len(join.condition.equi))]
    right = counts[1].select(*(F.col(c).alias(c if c.startswith("n_") else f"{c}_") for c in counts[1].columns))
    pairs = counts[0].join(right, F.expr(" AND ".join(same)))
    per_region = pairs.groupBy("region").agg(F.expr("sum(cast(n_left as double) * n_right)").alias("n")).toArrow()
    rows_out = _by_region(per_region["region"].to_numpy(), per_region["n"].to_numpy(), layout.workers)
    return LoadReport(rows_in, rows_out, input_rows, None, f"counted, {plan.chosen.scheme}")


def _with_regions(plan: TwoWay) -> TwoWay:
    """A join left to Spark is measured as what Spark does: hashing. Every region is a task, to be timed."""
    local = plan.local or local_named("merge_on_hash" if plan.condition.equi else "nested_loop")
    return replace(plan, local=local, shared_tasks=None)


def _rows_in(join: BoundJoin, plan: TwoWay, layout: Layout) -> tuple[Float64, float]:
    """Rows that arrive in each region, and rows there were before any was copied."""
    assert plan.local is not None
    arrived: DataFrame | None = None
    for side in SIDES:
        routed = route(join, side, layout, plan.facts.stable_order[side], hash_bits=plan.local.hash_bits)
        shipped = as_shipped(routed, layout, plan.local, join)
        mine = shipped.df.select(F.expr(region_of(shipped, layout.workers)).alias("region"))
        arrived = mine if arrived is None else arrived.unionAll(mine)
    assert arrived is not None
    table = arrived.groupBy("region").count().toArrow()
    rows_in = _by_region(table["region"].to_numpy(), table["count"].to_numpy(), layout.workers)
    return rows_in, float(sum(join.side(s).count() for s in SIDES))


def _by_region(region: np.ndarray, value: np.ndarray, workers: int) -> Float64:
    out = np.zeros(workers)
    known = np.array([r is not None and r == r for r in region], dtype=bool)
    np.add.at(out, region[known].astype(int), value[known].astype(float))
    return out
