"""Timing: one warm-up, several repetitions, median and spread; task times where they are asked for."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from evenkeel.report import LoadReport
from evenkeel.spark.metrics import tagged, task_seconds

MATERIALIZED = 60_000_000
"""Results up to this many rows are written out row by row (to Spark's no-op sink); larger ones are summed up."""


def consume(joined: DataFrame, pairs: float) -> None:
    if pairs <= MATERIALIZED:
        joined.write.format("noop").mode("overwrite").save()
    else:
        joined.agg(F.sum(F.expr("(id ^ id_r) & 255"))).collect()


def timed(actions: dict[str, Callable[[], Any]], repeat: int, warm: int = 1) -> dict[str, dict[str, Any]]:
    """Every action once to warm up, then all of them in turn, `repeat` times: drift hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(warm + repeat):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if round_ >= warm:
                seconds[name].append(time.perf_counter() - start)
    return {
        name: {
            "median": statistics.median(s),
            "spread": [min(s), max(s)],
            "runs": [round(v, 4) for v in s],
        }
        for name, s in seconds.items()
    }


def makespans(
    spark: SparkSession, actions: dict[str, tuple[Callable[[], Any], int | None]], workers: int, repeat: int
) -> dict[str, dict[str, Any]]:
    """Of every action, with the number of its tasks: when the last of `workers` machines would end, longest task first.

    One task in a run is often half as long again as it is in the next, whichever it is. So all of them are run in turn,
    `repeat` times, and of each the run in the middle counts.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in actions}
    for _ in range(repeat):
        for name, (action, tasks) in actions.items():
            runs[name].append(_makespan(spark, action, workers, tasks))
    return {name: _middle(r) for name, r in runs.items()}


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    by_time = sorted(runs, key=lambda r: r["seconds"])
    wall = statistics.median(r["wall"] for r in runs)
    lists = {name: [round(r[of], 4) for r in runs] for name, of in (("runs", "seconds"), ("walls", "wall"))}
    return by_time[len(runs) // 2] | {"wall": wall} | lists


def _makespan(spark: SparkSession, action: Callable[[], Any], workers: int, tasks: int | None) -> dict[str, Any]:
    start = time.perf_counter()
    with tagged(spark) as tag:
        action()
        wall = time.perf_counter() - start
        seconds = task_seconds(spark, tag, tasks)
    assert seconds is not None, "the benchmark needs Spark's UI for task times"
    busy = LoadReport(np.zeros(len(seconds)), np.zeros(len(seconds)), 0.0, seconds)
    return {
        "seconds": busy.projected_makespan(workers),
        "tasks": len(seconds),
        "longest": float(seconds.max()),
        "mean": float(seconds.mean()),
        "wall": wall,
    }


def peak_mb() -> float:
    """The most memory this process has held at once; unlike `ru_maxrss`, without that of whoever started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]
