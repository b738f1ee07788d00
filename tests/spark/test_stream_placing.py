"""Implementation against implementation: Spark hashes and places rows as numpy does."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F

from evenkeel.streaming.key_hash import in_turn, in_turn_sql
from evenkeel.streaming.strategies import STRATEGIES, strategy_named


@pytest.mark.parametrize("units", [2, 7, 16])
def test_placement_in_spark_is_placement_in_numpy(spark, units):
    rows = spark.range(500).selectExpr("xxhash64(id) AS key", "xxhash64(id, 1) AS row")
    arrow = rows.toArrow()
    key, row = (np.asarray(arrow[c]) for c in ("key", "row"))
    for strategy in STRATEGIES:
        made = strategy.start(("left", "right"), units, {})
        assert strategy_named(made.strategy).from_json(made.to_json()) == made
        for side in ("left", "right"):
            placed = made.place(side, key, row)
            expected = [sorted(placed.codes[placed.row == i]) for i in range(len(key))]
            got = rows.select(F.expr(made.place_sql(side, "key", "row")).alias("p")).toArrow()["p"].to_pylist()
            assert [sorted(p) for p in got] == expected, strategy.name
            assert max(len(p) for p in got) == 1 or made.replicates


def test_hashes_in_spark_are_hashes_in_numpy(spark):
    edges = [0, 1, 63, 64, 2**35 - 1, 2**35, 2**62, 2**63 - 1, -1, -64, -(2**35), -(2**63)]
    rng = np.random.default_rng(5)
    keys = np.array([*edges, *rng.integers(-(2**63), 2**63 - 1, 500)], dtype=np.int64)
    rows = spark.createDataFrame([(int(k),) for k in keys] + [(None,)], "k bigint").coalesce(1)
    got = rows.selectExpr(f"{in_turn_sql('k')} AS h").toArrow()["h"]
    assert got[-1].as_py() is None
    assert (np.asarray(got[:-1]) == in_turn(keys)).all()
