"""Against Spark's own batch join: streams that rebalance themselves on Structured Streaming, state moving all along."""

from __future__ import annotations

import numpy as np
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F
from tests.adapted import ADAPTIVE, INPUTS, reached, rows
from tests.spark.test_stream_join import NOW, feed, run  # noqa: F401

import evenkeel as ek
from evenkeel.streaming.structured.lookup import slots_of, with_exceptions
from evenkeel.testing import assert_same_rows
from evenkeel.testing.forced import Forced


def test_state_moves_in_every_epoch(spark, feed, tmp_path):  # noqa: F811
    """Keys moved and split, more units and fewer, another kind of table: results are those of the batch join."""
    (left, right), tables = feed[0](), feed[1]
    join = ek.stream_join(left, right, "l.name = r.name AND l.x < r.x", units=3, state=str(tmp_path / "state"))
    join.strategy = Forced(("hash", 3), ("one_bucket", 5), ("hash", 4), keys=6, steps=1)
    query, sink = run(join, tmp_path)
    expected = tables[0].alias("l").join(tables[1].alias("r"), F.expr("l.name = r.name AND l.x < r.x"))
    assert_same_rows(sink.table, expected.toArrow())
    moved = query.migrations()
    assert [m["epoch"] for m in moved] == [0, 1, 2, 3] and [m["units"] for m in moved] == [3, 5, 3, 4]
    assert moved[0]["keys"] == 6 and all(m["epochs"] == 0 for m in moved)
    assert all(m["rows"] > 0 and m["bytes"] > 0 for m in moved) and moved[0]["ratio_after"] is not None
    assert query.status()["routing_version"] == 4 and "routing 4 (since epoch 3" in query._line(query.driver.last)
    state = DeltaTable(str(tmp_path / "state")).to_pyarrow_table()
    assert state.num_rows == query.status()["state_rows"]
    assert set(state["unit"].to_pylist()) <= set(range(4)) and state["_row"].null_count == 0


@pytest.mark.parametrize("count", [0, 1, 63, 900])
def test_exceptions_are_found_and_nothing_else_is(spark, count):
    rng = np.random.default_rng(count)
    keys = [int(k) for k in rng.integers(-(2**63), 2**63 - 1, count)]
    if count:
        keys[0] = -(2**63)
    moved, placed = slots_of(keys)
    assert sorted(k for k in placed if k is not None) == sorted(keys) and len(placed) >= 2 * len(moved) >= 2 * count
    ways = {k: tuple((i % 7, i % 5 + 10) for i in range(n, n + 1 + n % 3)) for n, k in enumerate(keys)}
    asked = [*keys, *(int(k) for k in rng.integers(-(2**63), 2**63 - 1, 200)), 0, -1]
    rows = [int(r) for r in rng.integers(-(2**63), 2**63 - 1, len(asked))]
    frame = spark.createDataFrame(list(zip(asked, rows, strict=True)), "key bigint, row bigint")
    sql = with_exceptions(ways, "key", "row", "array(-1)")
    got = frame.select("key", "row", F.expr(sql).alias("w")).toArrow().to_pylist()
    for r in got:
        mine = ways.get(r["key"])
        assert r["w"] == ([-1] if mine is None else list(mine[r["row"] % len(mine)]))


@pytest.mark.parametrize("strategy", ADAPTIVE, ids=lambda s: s.name)
def test_spark_places_rows_as_numpy_does(spark, strategy):
    """By the last of the tables that a strategy reaches, exceptions included."""
    for world in ("zipf", "flips"):
        table = reached(strategy, world, 5, 3)[-1][1]
        key, row, position = rows(300, 8)
        frame = spark.createDataFrame(
            list(zip(range(300), key.tolist(), row.tolist(), position.tolist(), strict=True)),
            "n int, key bigint, row bigint, position double",
        )
        for input in INPUTS:
            sql = table.place_sql(input, "key", "row", "position")
            special = table.exceptions.get(input, {})
            if special:
                sql = with_exceptions(special, "key", "row", sql)
            got = frame.select("n", F.explode(F.expr(sql)).alias("code")).toArrow()
            placed = table.place(input, key, row, position)
            wanted = sorted(zip(placed.row.tolist(), placed.codes.tolist(), strict=True))
            assert sorted(zip(got["n"].to_pylist(), got["code"].to_pylist(), strict=True)) == wanted, (world, input)
