"""What the parts of `stream` share: files as streams, our join and Spark's over them, and a clock for batches.

Every system reads the same files with the same trigger (a file a side and batch) and drops its results in Spark's
no-op sink. A batch's time is that between the ends of two calls of the sink, so it holds everything: planning, source,
join, commit, checkpoint.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import evenkeel as ek
from benchmarks.peers import spark_streams
from evenkeel.types import SIDES

SEED = 20150531
NOW = {"availableNow": True}
MINUTE = 60_000_000


class Clock:
    """Batch times: when each call of the sink ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def sink(self, df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("overwrite").save()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self.ends, self.ends[1:], strict=False)]


def feed(folder: Path, batches: int, make: Callable[[int, str], pa.Table]) -> Path:
    """A file a batch and side, written once."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for side in SIDES:
            (part / side).mkdir(parents=True)
            for b in range(batches):
                add(part, side, b, make(b, side))
        part.rename(folder)
    return folder


def add(folder: Path, side: str, batch: int, rows: pa.Table) -> Path:
    """One more file; files are read in the order of their times."""
    file = folder / side / f"{batch:05d}.parquet"
    pq.write_table(rows, file)
    os.utime(file, (1e9 + batch, 1e9 + batch))
    return file


def streams(spark: SparkSession, folder: Path, schema: str | None = None) -> list[DataFrame]:
    return [
        spark.readStream.schema(schema or spark.read.parquet(str(folder / side)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        for side in SIDES
    ]


def ours(spark: SparkSession, folder: Path, work: Path, on: str, **options: Any) -> tuple[Clock, Any]:
    shutil.rmtree(work, ignore_errors=True)
    clock = Clock()
    join = ek.stream_join(*streams(spark, folder), on, state=str(work / "state"), **options)
    query = join.start(clock.sink, checkpoint=str(work / "checkpoint"), trigger=NOW)
    query.awaitTermination()
    return clock, query


Joined = Callable[[DataFrame, DataFrame], tuple[DataFrame, DataFrame, Any]]


def equal(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    return left, right, left["k"] == right["r_k"]


def sparks(spark: SparkSession, store: str, folder: Path, work: Path, joined: Joined) -> Clock:
    """Spark's own join of what `joined` makes of the inputs and by its condition; right columns are called `r_...`."""
    shutil.rmtree(work, ignore_errors=True)
    clock = Clock()
    left, right = streams(spark, folder)
    inputs = joined(left, right.toDF(*(f"r_{c}" for c in right.columns)))
    spark_streams.start(spark, store, *inputs, str(work / "checkpoint"), NOW, clock.sink).awaitTermination()
    return clock


def median(values: list[float]) -> float:
    return statistics.median(values)


def flatness(seconds: list[float]) -> dict[str, Any]:
    """The 10th and the 100th batch, each as the median of the seven around it, and the longest after the 10th."""
    tenth, hundredth = median(seconds[6:13]), median(seconds[95:102])
    return {
        "tenth": tenth, "hundredth": hundredth, "ratio": hundredth / tenth, "longest": max(seconds[9:]),
        "seconds": [round(s, 3) for s in seconds],
    }  # fmt: skip
