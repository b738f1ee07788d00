"""Conformance, against an oracle (Spark's own join on the raw rows): bucketed joins of every kind."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.conformance.test_two_way import HOWS, KEYS, table
from tests.quick import interpreting

import evenkeel as ek
from evenkeel.testing import assert_same_rows


def rows(keys, prefix):
    return pa.table({"k": pa.array(keys, pa.int64()), f"{prefix}n": pa.array(range(len(keys)), pa.int32())})


LEFT = rows([7] * 90 + [11] * 30 + [k % 50 for k in range(90)] + [None] * 9, "l")
RIGHT = rows([7] * 90 + [k % 70 for k in range(35, 105)] + [None] * 5, "r")


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Both inputs in buckets of several counts, plain and sharded."""
    folder = tmp_path_factory.mktemp("bucketed")
    frames = {"l": spark.createDataFrame(LEFT).cache(), "r": spark.createDataFrame(RIGHT).cache()}
    with interpreting(spark):
        for name, count in (("l", 4), ("r", 4), ("l", 8), ("r", 6)):
            ek.bucketed.write(frames[name], folder / f"{name}{count}", "k", buckets=count)
        for name, other in (("l", "r"), ("r", "l")):
            cut = ek.bucketed.write(frames[name], folder / f"{name}s", "k", bucket_size=400)
            ek.bucketed.write(frames[other], folder / f"{other} beside {name}s", "k", buckets=cut.buckets)
    yield folder, frames
    for df in frames.values():
        df.unpersist()


LAYOUTS = {
    "equal": ("l4", "r4"),
    "multiple": ("l8", "r4"),
    "common factor two": ("l4", "r6"),
    "sharded on the left": ("ls", "r beside ls"),
    "sharded on the right": ("l beside rs", "rs"),
    "sharded on both": ("ls", "rs"),
    "sharded on the left, other counts": ("ls", "r4"),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(spark, interpreted, tables, layout, how):
    folder, frames = tables
    left, right = LAYOUTS[layout]
    plan = ek.bucketed.plan(spark, folder / left, folder / right, how)
    got = plan.execute()
    expected = frames["l"].join(frames["r"], "k", how)
    assert got.columns == expected.columns
    assert_same_rows(got, expected)
    if plan.native_buckets:  # the same by the other way
        assert_same_rows(plan._arrow(None), expected)


def test_the_layouts_are_what_they_are_called(tables):
    folder, _ = tables
    for name in ("ls", "rs"):
        meta = ek.bucketed.open_table(folder / name).meta
        assert meta.sharded and len(meta.sharded) < meta.buckets, ek.bucketed.inspect(folder / name)
        assert max(len(u) for u in meta.by_bucket.values()) > 2


@pytest.mark.parametrize("kind", KEYS)
def test_key_types(spark, interpreted, tmp_path, kind, seed):
    """In Arrow, for the counts differ: every type is ordered in Python as Spark sorted it."""
    arrow, values = KEYS[kind]
    made = table(arrow, values, 37, seed, "l"), table(arrow, values, 29, seed + 1, "r")
    frames = [spark.createDataFrame(t) for t in made]
    if kind == "timestamp_ntz":  # Arrow's naive timestamps become Spark's zoned ones unless told otherwise
        frames = [f.withColumn("k", f.k.cast("timestamp_ntz")) for f in frames]
    ek.bucketed.write(frames[0], tmp_path / "l", "k", buckets=2)
    ek.bucketed.write(frames[1], tmp_path / "r", "k", buckets=3)
    expected = frames[0].join(frames[1], "k", "full")
    assert_same_rows(ek.bucketed.join(spark, tmp_path / "l", tmp_path / "r", "full"), expected)


def test_composite_keys_and_nested_columns(spark, interpreted, tmp_path):
    left = spark.sql(
        "SELECT id % 3 AS a, IF(id % 5 = 0, NULL, concat('b', id % 4)) AS b, array(id, NULL) AS list, "
        "named_struct('x', nullif(id, 3), 'y', nullif(cast(id AS string), '4')) AS pair, map('m', nullif(id, 5)) "
        "AS tags, cast(id AS decimal(20,2)) AS price, id AS `odd name` FROM range(40)"
    )
    right = spark.sql("SELECT cast(id % 4 AS bigint) AS a, concat('b', id % 3) AS second, id FROM range(30)")
    ek.bucketed.write(left, tmp_path / "l", ["a", "b"], buckets=3)
    ek.bucketed.write(right, tmp_path / "r", ["a", "second"], buckets=3)
    renamed = right.withColumnRenamed("second", "b")
    for how in ("inner", "full", "left_anti"):
        plan = ek.bucketed.plan(spark, tmp_path / "l", tmp_path / "r", how)
        assert plan.native_buckets
        expected = left.join(renamed, ["a", "b"], how)
        assert plan.execute().columns == expected.columns
        assert_same_rows(plan.execute(), expected)
        assert_same_rows(plan._arrow(None), expected)
