"""What a query cost: wall clock, CPU of executors and Python workers, bytes read and shuffled, and its tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from evenkeel.report import LoadReport
from evenkeel.spark import metrics


@dataclass
class Cost:
    wall: float
    cpu: float
    shuffled: int
    read: int
    makespan: float
    """Seconds until the last worker would be done, stage after stage, longest task first."""
    tasks: list[float] = field(default_factory=list)
    """CPU seconds of the tasks of the longest stage."""

    @property
    def longest_over_mean(self) -> float:
        return max(self.tasks) / (sum(self.tasks) / len(self.tasks))

    def to_dict(self) -> dict[str, Any]:
        shown = asdict(self) | {"tasks": [round(t, 4) for t in self.tasks]}
        return shown | {"longest_over_mean": self.longest_over_mean}


def measure(
    spark: SparkSession, action: Callable[[], Any], workers: int, timings: Path | None = None, read: int = 0
) -> Cost:
    """Run it once. `timings` is where Python workers leave their times, by partition; `read` is what they read."""
    if timings is not None:
        for old in timings.glob("*.json"):
            old.unlink()
    start = time.perf_counter()
    with metrics.tagged(spark) as tag:
        action()
        wall = time.perf_counter() - start
        api = metrics._api(spark)
        assert api is not None, "the benchmark needs Spark's UI for task times"
        stages = metrics._stages(api, tag, None)
    python = _python(timings)
    seconds = {s["stageId"]: _tasks(api, s) for s in stages}
    if python:  # they belong to the stage that ran longest
        main = max(seconds, key=lambda i: float(seconds[i].sum()))
        for partition, spent in python.items():
            seconds[main][partition] += spent
    first = np.concatenate([seconds[s["stageId"]] for s in stages if not s["shuffleReadBytes"]] or [np.zeros(1)])
    later = [seconds[s["stageId"]] for s in stages if s["shuffleReadBytes"]]
    return Cost(
        wall,
        float(sum(v.sum() for v in seconds.values())),
        int(sum(s["shuffleWriteBytes"] for s in stages)),
        int(sum(s["inputBytes"] for s in stages)) + read,
        sum(_makespan(t, workers) for t in [first, *later]),
        [float(t) for t in max(seconds.values(), key=lambda v: float(v.sum()))],
    )


def _tasks(api: str, stage: dict[str, Any]) -> Any:
    listed = metrics._get(f"{api}/stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=100000&status=success")
    seconds = np.zeros(max((t["partitionId"] for t in listed), default=0) + 1)
    for t in listed:
        if t.get("taskMetrics"):
            seconds[t["partitionId"]] = t["taskMetrics"]["executorCpuTime"] / 1e9
    return seconds


def _python(timings: Path | None) -> dict[int, float]:
    if timings is None:
        return {}
    found = (json.loads(p.read_text()) for p in timings.glob("*.json"))
    return {f["partition"]: f["cpu"] for f in found}


def _makespan(seconds: Any, workers: int) -> float:
    zeros = np.zeros(len(seconds))
    return LoadReport(zeros, zeros, 0.0, seconds).projected_makespan(workers)
