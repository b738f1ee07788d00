"""How many partitions a session can work on at once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from evenkeel.bucketed.source import PARALLELISM


def parallelism(spark: SparkSession) -> int:
    """Twice the cores, where the session tells."""
    try:
        return 2 * int(spark.sparkContext.defaultParallelism)
    except Exception:  # a Connect session has no context and says so in several ways
        return PARALLELISM
