"""What a query cost: wall clock, CPU of executors and Python workers, bytes read and shuffled, and its tasks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from evenkeel.report import LoadReport
from evenkeel.spark import metrics


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float
    driver: float
    """CPU seconds of this Python process: plans are made here, and files of a finished write are summed up."""
    shuffled: int
    read: int
    stages: tuple[tuple[float, ...], ...]
    """CPU seconds of the tasks that had rows to work on, by stage; stages that ran beside another are one with it."""

    def makespan(self, workers: int) -> float:
        """Seconds until the last worker would be done, stage after stage, longest task first."""
        return sum(_makespan(s, workers) for s in self.stages if s)

    @property
    def tasks(self) -> tuple[float, ...]:
        """Of the longest stage."""
        return max(self.stages, key=sum)

    @property
    def longest_over_mean(self) -> float:
        return max(self.tasks) / statistics.mean(self.tasks)


def typical(costs: Sequence[Cost]) -> Cost:
    """Medians over repetitions of one query; task by task too, for the same partition does the same work each time.

    Where Spark ran other stages or tasks in one of them, the tasks are those of the repetition of median CPU time.
    """
    middle = sorted(costs, key=lambda c: c.cpu)[len(costs) // 2]
    stages = middle.stages
    if len({tuple(map(len, c.stages)) for c in costs}) == 1:
        times = zip(*(c.stages for c in costs), strict=True)
        stages = tuple(tuple(map(statistics.median, zip(*stage, strict=True))) for stage in times)
    each = {n: statistics.median(getattr(c, n) for c in costs) for n in ("wall", "cpu", "driver")}
    return Cost(**each, shuffled=middle.shuffled, read=middle.read, stages=stages)


def measure(spark: SparkSession, action: Callable[[], Any], timings: Path | None = None) -> Cost:
    """Run it once. `timings` is where Python workers leave their times, by partition."""
    if timings is not None:
        for old in timings.glob("*.json"):
            old.unlink()
    start, begun = time.perf_counter(), time.process_time()
    with metrics.tagged(spark) as tag:
        action()
        wall, driver = time.perf_counter() - start, time.process_time() - begun
        api = metrics._api(spark)
        assert api is not None, "the benchmark needs Spark's UI for task times"
        stages = metrics._stages(api, tag, None)
    seconds = {s["stageId"]: _tasks(api, s) for s in stages}
    python = _python(timings)
    if python:  # they belong to the stage that ran longest
        main = max(seconds, key=lambda i: sum(seconds[i].values()))
        for partition, spent in python.items():
            seconds[main][partition] = seconds[main].get(partition, 0.0) + spent
    groups: list[tuple[float, ...]] = []
    end = ""
    for s in sorted(stages, key=lambda s: str(s["submissionTime"])):
        times = tuple(seconds[s["stageId"]].values())
        if str(s["submissionTime"]) < end and not s["shuffleReadBytes"]:
            groups[-1] += times
        else:
            groups.append(times)
        end = max(end, str(s["completionTime"]))
    return Cost(
        wall,
        sum(sum(v.values()) for v in seconds.values()),
        driver,
        sum(int(s["shuffleWriteBytes"]) for s in stages),
        sum(int(s["inputBytes"]) for s in stages),
        tuple(groups),
    )


def _tasks(api: str, stage: dict[str, Any]) -> dict[int, float]:
    """By partition; tasks that neither read nor wrote a row are no work to share."""
    listed = metrics._get(f"{api}/stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=100000&status=success")
    found = {}
    for t in sorted(listed, key=lambda t: int(t["partitionId"])):
        m = t.get("taskMetrics") or {}
        kinds = ("inputMetrics", "outputMetrics", "shuffleReadMetrics", "shuffleWriteMetrics")
        if any(v for k in kinds for n, v in m.get(k, {}).items() if n.startswith("records")):
            found[int(t["partitionId"])] = float(m["executorCpuTime"]) / 1e9
    return found


def _python(timings: Path | None) -> dict[int, float]:
    if timings is None:
        return {}
    found = (json.loads(p.read_text()) for p in timings.glob("*.json"))
    return {f["partition"]: f["cpu"] for f in found}


def _makespan(seconds: Sequence[float], workers: int) -> float:
    zeros = np.zeros(len(seconds))
    return LoadReport(zeros, zeros, 0.0, np.array(seconds)).projected_makespan(workers)
