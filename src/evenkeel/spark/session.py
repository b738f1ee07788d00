"""A local Spark session for the command line, the demo and the benchmarks; the library uses the caller's own."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_SET: dict[tuple[int, str], tuple[int, str | None]] = {}
"""Settings of sessions that are changed for now: by how many threads, and what they were before."""
_SETTING = threading.Lock()
_LOCAL = re.compile("^file:(?://(?:localhost)?)?/+")


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


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """The session with these settings. Threads that want the same ones share them: the last to leave restores them."""
    with _SETTING:
        for k, v in values.items():
            users, before = _SET.get((id(spark), k)) or (0, spark.conf.get(k, None))
            _SET[id(spark), k] = users + 1, before
            spark.conf.set(k, v)
    try:
        yield
    finally:
        with _SETTING:
            for k in values:
                users, before = _SET.pop((id(spark), k))
                if users > 1:
                    _SET[id(spark), k] = users - 1, before
                else:
                    spark.conf.unset(k) if before is None else spark.conf.set(k, before)


def over_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def local_path(text: str | os.PathLike[str]) -> str:
    """A path of this machine without its scheme; nothing in it is decoded, as in Spark. Others stay as they are."""
    return _LOCAL.sub("/", os.fspath(text))
