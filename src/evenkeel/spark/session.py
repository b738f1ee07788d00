"""A local Spark session for the command line, the demo and the benchmarks; libraries use the caller's own."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def local_session(name: str, cores: int | None = None, memory: str = "4g", **config: str) -> SparkSession:
    """A session on this machine's cores, bound to loopback, with its UI on for task times."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName(name)
        .master(f"local[{cores or '*'}]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for key, value in config.items():
        builder = builder.config(key.replace("__", "."), value)
    return builder.getOrCreate()
