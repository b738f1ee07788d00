"""Against an oracle (DuckDB): the core of the conformance suite over Spark Connect.

A Connect session and a classic one cannot live in one process, so this file runs itself in another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.quick import INTERPRETED

HOWS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
SCHEMES = ["heavy_light", "broadcast", "auto"]
HOT = [0] * 30 + [1] * 20 + list(range(20)) + [None] * 6, [0] * 25 + [1] * 10 + list(range(15, 40)) + [None] * 4
ON = ["l.k = r.k", "l.k = r.k AND l.ln < r.rn"]


def test_conformance_over_connect(tmp_path):
    # SPARK_TESTING makes the server take a free port and the client ask it which.
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, __file__], env=os.environ | local, cwd=tmp_path, text=True, capture_output=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert f"connect ok: {len(HOWS) * len(SCHEMES) * len(ON)} joins" in done.stdout.splitlines()


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for key, value in {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "3",
        **INTERPRETED,
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        print(f"connect ok: {check(spark)} joins")
    finally:
        spark.stop()


def check(spark) -> int:
    from tests.conformance.test_two_way import keyed
    from tests.oracle import duck_join

    import evenkeel as ek
    from evenkeel.testing import assert_same_rows

    assert "connect" in type(spark).__module__
    tables = [keyed(keys, side) for keys, side in zip(HOT, "lr", strict=True)]
    left, right = map(spark.createDataFrame, tables)
    joins = 0
    for on in ON:
        for how in HOWS:
            expected = duck_join(*tables, on, how)
            for scheme in SCHEMES:
                plan = ek.plan(left, right, on, how, scheme=scheme, workers=5)
                assert_same_rows(plan.execute(), expected)
                joins += 1
    assert plan.explain() and ek.plan(left, right, "k", workers=5).measure().rows_out.sum() > 0
    return joins


if __name__ == "__main__":
    main()
