"""Spark: what is known of the keys is near the truth, whatever Spark believes of an input's size."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.spark import sampling, statistics
from evenkeel.spark.inputs import explain_text, row_bytes, row_estimate
from evenkeel.testing import zipf_keys
from evenkeel.types import Exact, Inexact

ROWS, KEYS = 60_000, 4_000


@pytest.fixture
def small_samples(monkeypatch):
    monkeypatch.setattr(statistics, "SAMPLE_ROWS", 6_000)


@pytest.fixture
def facts(spark, seed, tmp_path):
    """A stored table, because Spark knows the size of one in memory too well, and its key counts; not in Parquet,
    whose keys are read without Spark."""
    keys = zipf_keys(ROWS, KEYS, 1.1, seed)
    table = pa.table({"k": keys, "id": np.arange(ROWS), "pad": np.random.default_rng(seed).random(ROWS)})
    spark.createDataFrame(table).write.orc(str(tmp_path / "facts"))
    return spark.read.orc(str(tmp_path / "facts")), np.bincount(keys, minlength=KEYS)


def dimension(spark):
    return spark.range(KEYS).select(F.col("id").alias("k"), F.lit(1).alias("one"))


def estimate(df):
    return row_estimate(explain_text(df.select("*")), row_bytes(df.schema))  # Spark plans a frame once


def drawn_sizes(monkeypatch):
    """How many rows every sample had, from now on."""
    sizes, draw = [], sampling.draw

    def counted(*args, **kwargs):
        drawn = draw(*args, **kwargs)
        sizes.append(len(drawn.rows))
        return drawn

    monkeypatch.setattr(sampling, "draw", counted)
    return sizes


def hottest_of(plan, side="left"):
    stats = plan.tree.stats.of(side)
    return stats, float(stats.counts[0])


def test_a_sample_of_a_stored_table(spark, facts, small_samples):
    table, counts = facts
    stats, hottest = hottest_of(ek.plan(table, dimension(spark), "k", workers=8))
    assert isinstance(stats.rows, Inexact) and 0 < stats.fraction < 1
    assert stats.row_count == pytest.approx(ROWS, rel=0.1) and hottest == pytest.approx(counts[0], rel=0.1)


def test_the_result_of_a_join_is_looked_at_whole(spark, facts, small_samples, monkeypatch):
    """Spark takes the product of both sizes for its size: a sample by that would be empty."""
    table, counts = facts
    drawn = drawn_sizes(monkeypatch)
    joined = table.join(dimension(spark), "k")
    stats, hottest = hottest_of(ek.plan(joined, joined, "k", workers=8))
    assert stats.rows == Exact(ROWS) and hottest == counts[0] and not drawn
    again = ek.join(joined, dimension(spark).withColumnRenamed("one", "two"), "k", workers=8)
    stats, hottest = hottest_of(ek.plan(again, joined, "k", workers=8))
    assert stats.rows == Exact(ROWS) and hottest == counts[0]


def test_whose_size_spark_knows(spark, facts):
    """A join's it does not; that of what a join was kept in it does, and a filter it can be off by only so much."""
    table, _ = facts
    joined = table.join(dimension(spark), "k").cache()
    before = estimate(joined)
    joined.count()
    assert before > 1e6 and estimate(joined) < 10 * ROWS
    joined.unpersist()
    assert estimate(joined.filter("k > 1")) is None and estimate(table.crossJoin(dimension(spark))) is None
    assert estimate(table.join(dimension(spark), "k", "left_semi")) is not None
    assert estimate(table.filter("k IN (SELECT id FROM range(10))")) is not None
    assert estimate(table.withColumnRenamed("pad", "Join Inner")) == pytest.approx(estimate(table))
    assert estimate(table.groupBy("k").count()) is not None and estimate(table.union(table)) > estimate(table)


def test_many_tasks_that_all_have_more_rows_than_spark_thinks(spark, small_samples, monkeypatch):
    """An explode is taken to have as many rows as its input. What all tasks send together stays bounded."""
    monkeypatch.setattr(sampling, "MOST_ROWS", 2_000)
    many = spark.range(0, 40, 1, 40).selectExpr("explode(sequence(1, 3000)) AS k")
    drawn = drawn_sizes(monkeypatch)
    stats = ek.plan(many, dimension(spark), "k", workers=8).tree.stats.left
    assert max(drawn) < 2_000 * (np.log(40) + 1) + 40
    assert stats.rows == Exact(120_000) and stats.distinct.value == pytest.approx(3_000, rel=0.1)


def test_ranges_of_more_rows_than_spark_thinks(spark, monkeypatch):
    """A range join reads all keys of an input that looks small; one that is not is counted and sampled."""
    monkeypatch.setattr(statistics, "DRIVER_ROWS", 20_000)
    monkeypatch.setattr(statistics, "input_sample_size", lambda *_: 5_000)
    many = spark.range(0, 40, 1, 40).selectExpr("explode(sequence(1, 3000)) AS k")
    sizes, draw = [], sampling.draw
    monkeypatch.setattr(statistics, "draw", lambda *a: sizes.append(draw(*a)) or sizes[-1])
    few = spark.range(100).withColumnRenamed("id", "k")
    plan = ek.plan(many, few, "abs(l.k - r.k) <= 1", workers=4)
    assert max(len(d.rows) for d in sizes) < 20_000 * (np.log(40) + 1) + 40 and any(d.cut for d in sizes)
    assert plan.tree.stats.left.rows == Exact(120_000) and plan.tree.stats.right.rows == Exact(100)
    assert plan.execute().count() == 40 * (98 + 99 + 100)  # a right key above, equal, below


@pytest.mark.parametrize("kept", [10, 1000, 10**9])
def test_a_filter_that_spark_takes_for_none(spark, facts, small_samples, kept):
    """The first sample of one row in ten has a few hundred rows, of one in a thousand next to none."""
    table, _ = facts
    rare = table.filter(f"hash(id) % {kept} = 0")
    rows, hot = rare.count(), rare.filter("k = 0").count()
    stats = ek.plan(rare, dimension(spark), "k", workers=8).tree.stats.left
    assert stats.row_count == pytest.approx(rows, rel=0.05)
    found = dict(zip(stats.keys.tolist(), stats.counts.tolist(), strict=True))
    named = rare.limit(0).unionByName(table.filter("k = 0").limit(1)).selectExpr("xxhash64(k) AS h").first().h
    assert found.get(named, 0) == pytest.approx(hot, rel=0.05)


@pytest.mark.parametrize(("most", "rows"), [(50_000, 400_000), (2_500, 30_000)])
def test_a_table_far_larger_than_its_files(spark, small_samples, monkeypatch, tmp_path, most, rows):
    """Rows all alike take no room: Spark sees some kilobytes. No task sends more keys than it may.

    The second sample is small enough in the first case; in the other Spark counts.
    """
    monkeypatch.setattr(sampling, "MOST_ROWS", most)
    path = str(tmp_path / "alike")
    spark.range(0, rows, 1, 2).selectExpr("7L AS k", "0L AS x").write.orc(path)
    sent = drawn_sizes(monkeypatch)
    stats, hottest = hottest_of(ek.plan(spark.read.orc(path), dimension(spark), "k", workers=8))
    assert most <= max(sent) <= 1.5 * most + 2
    assert isinstance(stats.rows, Inexact if most == 50_000 else Exact)
    assert hottest == stats.row_count
    assert most == 50_000 or stats.row_count == rows


def test_sampled_and_aggregated_tell_the_same(spark, facts):
    table, counts = facts
    bound = ek.plan(table, dimension(spark), "k", workers=8)._request
    drawn = statistics._collect_side(bound, "left", float(ROWS))
    native = statistics._collect_side(bound, "left", None)
    assert drawn.rows == native.rows == Exact(ROWS) and drawn.null_rows == native.null_rows == Exact(0)
    assert drawn.counts[:50].tolist() == native.counts[:50].tolist() == sorted(counts, reverse=True)[:50]
    assert drawn.complete and drawn.distinct.value == np.count_nonzero(counts)


@pytest.mark.parametrize("expected", [100.0, None])
def test_null_keys_and_nothing_at_all(spark, expected):
    left = spark.createDataFrame([(None,), (None,), (1,)], "k int")
    bound = ek.plan(left, left.filter("false"), "k", workers=2)._request
    some, none = (statistics._collect_side(bound, s, expected) for s in ("left", "right"))
    assert (some.rows, some.null_rows, some.counts.tolist(), some.complete) == (Exact(3), Exact(2), [1.0], True)
    assert (none.rows, none.null_rows, none.counts.tolist(), none.complete) == (Exact(0), Exact(0), [], True)


@pytest.mark.parametrize(
    ("schema", "key", "shown"),
    [
        ("k string", ("Ithaca",), "Ithaca"),
        ("k string", ("x" * 100,), "x" * 40),
        ("k binary", (bytearray(b"\x00\xff"),), "00FF"),
        ("k decimal(9,2)", (Decimal("1.50"),), "1.50"),
        ("k double", (2.5,), "2.5"),
        ("k date", (dt.date(2026, 2, 28),), "2026-02-28"),
        ("k boolean", (True,), "true"),
        ("k int, j string", (3, "a"), "3, a"),
    ],
)
def test_explain_names_hot_keys_of_every_type(spark, schema, key, shown):
    left = spark.createDataFrame([key] * 50, schema)
    on = [part.split()[0] for part in schema.split(", ")]
    text = ek.plan(left, left, on, workers=4, scheme="heavy_light").explain()
    assert f"  hot: {shown}: ~50 x ~50 rows, 100.0% of the pairs" in text


def test_explain_names_a_null_that_matches_and_leaves_broken_text_alone(spark):
    none = spark.createDataFrame([(None,)] * 50, "k int")
    text = ek.plan(none, none, "l.k <=> r.k", workers=4, scheme="heavy_light").explain()
    assert "  hot: NULL: ~50 x ~50 rows" in text
    broken = spark.range(50).selectExpr("cast(X'c328' AS string) AS k")
    text = ek.plan(broken, broken, "k", workers=4, scheme="heavy_light").explain()
    assert "  hot: " in text and ": ~50 x ~50 rows" in text
