"""Functions that run in Spark's Python workers, without what a small task there would spend most of its time on.

Spark ends every task with a full garbage collection, which walks over all that was ever imported: 50 ms of CPU. What is
there after the first task of a worker stays for its life, so it is taken out of the collector's sight.

Spark sends a task in small pieces, and TCP holds back a piece until the one before is acknowledged, which Linux puts
off for 40 ms. So the function acknowledges what has come before it asks for rows (docs/adr/0054).
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Batches = Iterator[pa.RecordBatch]
OPEN_FILES = "/proc/self/fd"


def in_workers(df: DataFrame, each: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:
    """The batches that `each` makes of those of every partition."""

    def run(batches: Batches) -> Batches:
        yield from briskly(each(batches))

    return df.mapInArrow(run, schema)


def briskly(batches: Batches) -> Batches:
    """The same batches, for a function that a worker runs."""
    acknowledge()
    try:
        yield from batches
    finally:
        _settle()


def acknowledge() -> None:
    """Acknowledge all that has come on this process's TCP connections; where the system has no such call, nothing."""
    if not hasattr(socket, "TCP_QUICKACK") or not os.path.isdir(OPEN_FILES):
        return
    if socket.getdefaulttimeout() is not None:  # Python would make the connections of others non-blocking
        return
    for number in os.listdir(OPEN_FILES):
        with suppress(OSError):  # of files that are no connection
            connection = socket.socket(fileno=int(number))
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            connection.detach()  # it goes on being whose it was


@cache
def _settle() -> None:
    gc.collect()
    gc.freeze()
