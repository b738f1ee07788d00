"""Task times of a query, from the REST interface of Spark's own web UI, which every version has.

Where there is no UI (switched off, or the session is a Spark Connect client) times are simply not known.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import numpy as np
from pyspark.sql import SparkSession

from evenkeel.types import Float64


@contextmanager
def tagged(spark: SparkSession) -> Iterator[str]:
    """Jobs started inside carry a tag of their own."""
    tag = f"evenkeel-{uuid4().hex[:12]}"
    spark.addTag(tag)
    try:
        yield tag
    finally:
        spark.removeTag(tag)


def task_seconds(spark: SparkSession, tag: str, tasks: int | None = None) -> Float64 | None:
    """CPU seconds of the tasks of the longest stage among the tagged jobs, by partition.

    With `tasks`, only stages of that many tasks are looked at. None when Spark would not tell.
    """
    nanos = task_metric(spark, tag, "executorCpuTime", tasks)
    return None if nanos is None else nanos / 1e9


def task_metric(spark: SparkSession, tag: str, metric: str, tasks: int | None = None) -> Float64 | None:
    """Any of Spark's task metrics, for the same tasks."""
    api = _api(spark)
    if api is None:
        return None
    stages = _stages(api, tag, tasks)
    if not stages:
        return None
    stage = max(stages, key=lambda s: float(s["executorCpuTime"]))
    listed = _get(f"{api}/stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=100000&status=success")
    done = [t for t in listed if t.get("taskMetrics")]
    values = np.zeros(max((t["partitionId"] for t in done), default=-1) + 1)
    for t in done:
        values[t["partitionId"]] = t["taskMetrics"][metric]
    return values


def _api(spark: SparkSession) -> str | None:
    try:
        context = spark.sparkContext
        url = context.uiWebUrl
    except Exception:  # a Connect session has no context and says so in several ways
        return None
    if not url:
        return None
    port = url.rsplit(":", 1)[1]
    return f"http://127.0.0.1:{port}/api/v1/applications/{context.applicationId}"


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def _stages(api: str, tag: str, tasks: int | None) -> list[dict[str, Any]]:
    """Finished stages of the tagged jobs; the UI learns of the last task a moment after the job has ended."""

    def look() -> list[dict[str, Any]] | None:
        jobs = [j for j in _get(f"{api}/jobs") if any(t.endswith(tag) for t in j.get("jobTags", []))]
        if not jobs or any(j["status"] == "RUNNING" for j in jobs):
            return None
        wanted = {s for j in jobs for s in j["stageIds"]}
        stages = [s for s in _get(f"{api}/stages") if s["stageId"] in wanted]
        if any(s["status"] in ("ACTIVE", "PENDING") for s in stages):
            return None
        return [s for s in stages if s["status"] == "COMPLETE" and tasks in (None, s["numTasks"])]

    return _eventually(look) or []


def _eventually(look: Callable[[], list[dict[str, Any]] | None]) -> list[dict[str, Any]] | None:
    for _ in range(50):
        found = look()
        if found is not None:
            return found
        time.sleep(0.05)
    return None
