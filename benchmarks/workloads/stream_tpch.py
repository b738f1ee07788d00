"""Q5, Q7 and Band of BiStream's section 6.1 over TPC-H at scale 1, fed as streams: join-biclique and join-matrix.

    Q5     suppliers of ASIA x lineitem, on the supplier          Q7     suppliers of FRANCE and GERMANY x lineitem
    Band   lineitem by truck, quantity above 48, x lineitem with no instruction, on abs(orderkey difference) <= 1

Tables are projected to the columns they need and their order is shuffled, as rows of a stream come. JM16 is the matrix,
JB16 the biclique with random routing, JB16-CRy the same with ContRand and y subgroups a side, 16 units each; `auto` is
what a user gets who names no strategy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.spark_streams import STORES
from benchmarks.results import Results
from benchmarks.workloads.stream_feeds import SEED, feed, median, ours, sparks

SETTINGS = {
    "JM16": "one_bucket", "JB16": "random", "JB16-CR4": "contrand(d=4, e=4)", "JB16-CR8": "contrand(d=8, e=8)",
    "auto": "auto",
}  # fmt: skip
QUERIES = {
    "Q5": "l.suppkey = r.suppkey",
    "Q7": "l.suppkey = r.suppkey",
    "Band": "abs(l.orderkey - r.orderkey) <= 1",
}
BATCHES = 8


def part(spark: SparkSession, options: argparse.Namespace, name: str, results: Results) -> dict[str, Any]:
    source = options.data / "tpch"
    for table in ("lineitem", "supplier", "nation", "region"):
        if not (source / f"{table}.parquet").exists():
            tool = Path(sys.executable).with_name("tpchgen-cli")
            command = [str(tool), "parquet", "-s", "1", f"--tables={table}", f"--output-dir={source}"]
            subprocess.run(command, check=True, timeout=900)
    left, right = _inputs(source, name, options.tpch_rows)

    def make(b: int, side: str) -> pa.Table:
        rows = left if side == "left" else right
        at = len(rows) * b // BATCHES
        return rows.slice(at, len(rows) * (b + 1) // BATCHES - at)

    folder = feed(options.data / f"stream-{name}-{options.tpch_rows}", BATCHES, make)
    work = options.data / "stream-work"
    out: dict[str, Any] = {"rows": {"left": len(left), "right": len(right)}}
    total = len(left) + len(right)
    for setting, strategy in SETTINGS.items():
        if name == "Band" and strategy.startswith("contrand"):
            continue  # routed by key, and a band has none
        clock, query = ours(spark, folder, work, QUERIES[name], strategy=strategy, units=16)
        status = query.status()
        received = [sum(u["received"].values()) for u in query.loads()]
        out[setting] = {
            "rows_per_second": total / BATCHES / median(clock.seconds[1:]),
            "state_rows": status["state_rows"],
            "replication": status["state_rows"] / total,
            "sent": sum(received) / max(1, sum(query.driver.last.rows.values())),
            "heaviest_over_mean": max(received) / (sum(received) / len(received)),
            "pairs": status["totals"]["pairs"],
        }
        results.say(f"{name} {setting}: " + ", ".join(f"{k} {v:,.2f}" for k, v in out[setting].items()))
    assert len({out[s]["pairs"] for s in SETTINGS if s in out}) == 1, "the settings disagree"
    for store in reversed(STORES):
        out[store] = _peer(spark, options, name, store, folder, total, results)
    return out


def _peer(
    spark: SparkSession, options: argparse.Namespace, name: str, store: str, folder: Path, total: int, results: Results
) -> dict[str, Any]:
    """Spark's own join of the same files."""
    clock = sparks(spark, store, folder, options.data / "stream-work", _band if name == "Band" else _equal)
    found = {"rows_per_second": total / BATCHES / median(clock.seconds[1:])}
    results.say(f"{name} Spark, {store}: {found['rows_per_second']:,.0f} rows/s")
    return found


def _equal(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    return left, right, left["suppkey"] == right["r_suppkey"]


def _band(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    """Spark joins streams by equality alone: each row of the smaller input is repeated for every order it meets."""
    near = left.withColumn("near", F.explode(F.expr("sequence(orderkey - 1, orderkey + 1)")))
    return near, right, near["near"] == right["r_orderkey"]


def _inputs(source: Path, name: str, rows: int) -> tuple[pa.Table, pa.Table]:
    line = f"'{source}/lineitem.parquet'"
    nations = (
        f"SELECT n_nationkey FROM '{source}/nation.parquet' JOIN '{source}/region.parquet' "
        "ON n_regionkey = r_regionkey WHERE r_name = 'ASIA'"
        if name == "Q5"
        else f"SELECT n_nationkey FROM '{source}/nation.parquet' WHERE n_name IN ('FRANCE', 'GERMANY')"
    )
    if name == "Band":
        left = f"SELECT l_orderkey AS orderkey FROM {line} WHERE l_shipmode = 'TRUCK' AND l_quantity > 48"
        right = f"SELECT l_orderkey AS orderkey FROM {line} WHERE l_shipinstruct = 'NONE'"
    else:
        left = (
            f"SELECT s_suppkey AS suppkey, s_nationkey FROM '{source}/supplier.parquet' "
            f"JOIN ({nations}) ON s_nationkey = n_nationkey"
        )
        right = f"SELECT l_suppkey AS suppkey, l_orderkey, l_extendedprice, l_discount FROM {line}"
    with duckdb.connect() as db:
        tables = [
            db.sql(f"SELECT * FROM ({sql}) USING SAMPLE reservoir({rows} ROWS) REPEATABLE (7)").to_arrow_table()
            for sql in (left, right)
        ]
    shuffled = [t.take(pa.array(np.random.default_rng(SEED).permutation(len(t)))) for t in tables]
    return shuffled[0], shuffled[1]
