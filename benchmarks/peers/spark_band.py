"""Band joins as people write them on Spark: bins chosen by hand, and Spark's own plan for the bare condition."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def renamed(right: DataFrame) -> DataFrame:
    return right.toDF(*(f"{c}_r" for c in right.columns))


def bins(left: DataFrame, right: DataFrame, beta: int, width: int) -> DataFrame:
    """The left row in its bin, the right row in every bin it may match, an equi-join of bins."""
    low, high = f"floor((key_r - {beta}) / {width})", f"floor((key_r + {beta}) / {width})"
    a = left.withColumn("bin", F.expr(f"floor(key / {width})"))
    b = renamed(right).withColumn("bin", F.explode(F.expr(f"sequence({low}, {high})")))
    return a.join(b, "bin").where(f"abs(key - key_r) <= {beta}").drop("bin")


def own_plan(left: DataFrame, right: DataFrame, beta: int) -> DataFrame:
    return left.join(renamed(right), F.expr(f"abs(key - key_r) <= {beta}"))
