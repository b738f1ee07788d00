"""How many partitions a session can work on at once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from evenkeel.bucketed.source import PARALLELISM
from evenkeel.spark.inputs import cores


def parallelism(spark: SparkSession) -> int:
    """Twice the cores, where the session tells."""
    known = cores(spark)
    return PARALLELISM if known is None else 2 * known
