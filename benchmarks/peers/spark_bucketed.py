"""Spark's own ways to join the same two tables again and again: shuffle each time, or `bucketBy` once."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def shuffled(spark: SparkSession, left: Path, right: Path) -> DataFrame:
    return _joined(spark.read.parquet(str(left)), spark.read.parquet(str(right)))


def write(spark: SparkSession, source: Path, name: str, folder: Path, buckets: int) -> None:
    """As its documentation shows it, with one file a bucket: otherwise every task writes a file to each."""
    drop(spark, name, folder)
    df = spark.read.parquet(str(source)).repartition(buckets, "k")
    writer = df.write.bucketBy(buckets, "k").sortBy("k").format("parquet").option("path", str(folder.absolute()))
    writer.saveAsTable(name)


def bucketed(spark: SparkSession, left: str, right: str) -> DataFrame:
    return _joined(spark.table(left), spark.table(right))


def drop(spark: SparkSession, name: str, folder: Path) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    shutil.rmtree(folder, ignore_errors=True)


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    names = set(left.columns) - {"k"}
    return left.join(right.select(*(F.col(c).alias(f"{c}_r") if c in names else F.col(c) for c in right.columns)), "k")
