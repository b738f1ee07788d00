"""What tasks and operators of a query took, from the REST interface of Spark's own web UI, which every version has.

Where there is no UI (switched off, or the session is a Spark Connect client) it is simply not known.
"""

from __future__ import annotations

import json
import re
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


def operator_bytes(spark: SparkSession, tag: str, metric: str) -> float | None:
    """The most bytes that one task held by a metric of Spark's operators, over the tagged queries; None if unknown.

    Spark publishes these for reading ("total (min, med, max ...)"), so they are as exact as it prints them.
    """
    api = _api(spark)
    if api is None:
        return None

    def look() -> list[dict[str, Any]] | None:
        jobs = {j["jobId"] for j in _jobs(api, tag)}
        queries = _get(f"{api}/sql?details=true&planDescription=false&length=100000")
        mine = [q for q in queries if jobs & {*q["successJobIds"], *q["runningJobIds"]}]
        return None if any(q["status"] == "RUNNING" for q in mine) else mine

    nodes = [n for q in _eventually(look) or [] for n in q["nodes"]]
    said = [m["value"] for n in nodes for m in n["metrics"] if m["name"] == metric]
    return max((largest_size(text) for text in said), default=0.0)


def largest_size(text: str) -> float:
    """The maximum in Spark's wording of sizes: of the tasks where it names them, else the one size there is."""
    tasks = text.rsplit("\n", 1)[-1].split("(stage", 1)[0]
    number, unit = re.findall(r"([\d.,]+) ([KMGT]?i?B)\b", tasks)[-1]
    return float(number.replace(",", "")) * 1024.0 ** "BKMGT".index(unit[0])


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


def _jobs(api: str, tag: str) -> list[dict[str, Any]]:
    return [j for j in _get(f"{api}/jobs") if any(t.endswith(tag) for t in j.get("jobTags", []))]


def _stages(api: str, tag: str, tasks: int | None) -> list[dict[str, Any]]:
    """Finished stages of the tagged jobs; the UI learns of the last task a moment after the job has ended."""

    def look() -> list[dict[str, Any]] | None:
        jobs = _jobs(api, tag)
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
