"""Spark's own equi-join under four settings: without AQE, with it, with its skew thresholds lowered, and salted.

Wall clock is taken with everything at its default, so AQE may merge small partitions, which is what suits a small
machine best. Task times are taken with that merging off: on as many workers as there are partitions Spark would
not merge them down to two tasks, and a projection must not hold that against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SALTS = 16
_OFF = {"spark.sql.adaptive.enabled": "false"}
_ON = {"spark.sql.adaptive.enabled": "true"}
_LOW = {
    **_ON,
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "512KB",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "256KB",
}
PEERS: dict[str, dict[str, str]] = {
    "spark, AQE off": _OFF,
    "spark": _ON,
    "spark, AQE lowered": _LOW,
    "spark, salted": _ON,
}
KEEP_PARTITIONS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    old = {k: spark.conf.get(k, None) for k in values}
    for k, v in values.items():
        spark.conf.set(k, v)
    try:
        yield
    finally:
        for k, v in old.items():
            spark.conf.unset(k) if v is None else spark.conf.set(k, v)


def join(peer: str, left: DataFrame, right: DataFrame) -> DataFrame:
    right = right.select("k", *(F.col(c).alias(f"{c}_r") for c in right.columns if c != "k"))
    if peer != "spark, salted":
        return left.join(right, "k")
    salted = left.withColumn("salt", (F.rand(1) * SALTS).cast("int"))
    copies = right.withColumn("salt", F.explode(F.sequence(F.lit(0), F.lit(SALTS - 1))))
    return salted.join(copies, ["k", "salt"]).drop("salt")
