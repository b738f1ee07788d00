"""Spark, implementation against implementation: keys read from Parquet files say what Spark's own look says."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.spark import parquet_keys, statistics
from evenkeel.testing import assert_same_rows, zipf_keys

ROWS, KEYS, WORKERS = 20_000, 900, 8


@pytest.fixture
def looks(monkeypatch):
    """How often Spark was asked to look at keys, from now on."""
    asked, sample = [], statistics.sample
    monkeypatch.setattr(statistics, "sample", lambda *a: asked.append(1) or sample(*a))
    return asked


def stored(spark, path, keys, files=3, name="k"):
    """A table of some files, with the keys as given."""
    path.mkdir(parents=True)
    table = pa.table({name: keys, "id": np.arange(len(keys))})
    for i in range(files):
        at, end = i * len(keys) // files, (i + 1) * len(keys) // files
        pq.write_table(table.slice(at, end - at), path / f"{i}.parquet", row_group_size=1000)
    return spark.read.parquet(str(path))


def dimension(spark, kind="bigint"):
    return spark.range(KEYS).selectExpr(f"cast(id AS {kind}) AS k", "id AS d")


def some_keys(kind, seed, nulls=True):
    keys = zipf_keys(ROWS, KEYS, 1.1, seed)
    mask = np.random.default_rng(seed).random(ROWS) < 0.1 if nulls else None
    if kind == pa.date32():
        return pa.array(keys.astype(np.int32), pa.int32(), mask=mask).cast(pa.date32())
    return pa.array(np.mod(keys, 100 if kind == pa.int8() else KEYS), kind, mask=mask)


def read_by_spark(monkeypatch):
    monkeypatch.setattr(statistics, "read_keys", lambda *a: None)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "date32"])
def test_both_looks_say_the_same(spark, looks, monkeypatch, tmp_path, seed, kind):
    keys = some_keys(getattr(pa, kind)(), seed)
    left, right = (stored(spark, tmp_path / side, keys) for side in ("l", "r"))
    mine = ek.plan(left, right, "k", workers=WORKERS)
    assert not looks
    read_by_spark(monkeypatch)
    theirs = ek.plan(left, right, "k", workers=WORKERS)
    assert len(looks) == 2
    for side in ("left", "right"):
        a, b = mine.tree.stats.of(side), theirs.tree.stats.of(side)
        assert (a.rows, a.null_rows, a.complete) == (b.rows, b.null_rows, b.complete)
        assert dict(zip(a.keys, a.counts, strict=True)) == dict(zip(b.keys, b.counts, strict=True))


def test_composite_keys_and_null_safe_ones(spark, looks, monkeypatch, tmp_path, seed):
    keys = some_keys(pa.int32(), seed)
    left, right = (stored(spark, tmp_path / side, keys) for side in ("l", "r"))
    on = "l.k <=> r.k AND l.id = r.id"
    mine = ek.plan(left, right, on, workers=WORKERS, scheme="heavy_light").tree.stats
    assert not looks
    read_by_spark(monkeypatch)
    theirs = ek.plan(left, right, on, workers=WORKERS, scheme="heavy_light").tree.stats
    assert looks
    assert mine.left.rows == theirs.left.rows and mine.left.null_rows == theirs.left.null_rows
    assert mine.left.distinct == theirs.left.distinct


def test_a_sample_of_many_rows_is_near_the_truth(spark, looks, monkeypatch, tmp_path, seed):
    monkeypatch.setattr(statistics, "FILE_SAMPLE_ROWS", 4_000)
    keys = np.sort(zipf_keys(ROWS, KEYS, 1.1, seed))
    stats = ek.plan(stored(spark, tmp_path / "l", keys), dimension(spark), "k", workers=WORKERS).tree.stats.left
    assert len(looks) == 1  # the other side
    assert stats.row_count == pytest.approx(ROWS) and 0.15 < stats.fraction < 0.25
    assert stats.counts[0] == pytest.approx(np.bincount(keys).max(), rel=0.1)
    again = ek.plan(spark.read.parquet(str(tmp_path / "l")), dimension(spark), "k", workers=WORKERS).tree.stats.left
    assert np.array_equal(stats.keys, again.keys) and np.array_equal(stats.counts, again.counts)


def renamed(df):
    return df.select(F.col("k").alias("id"), F.col("id").alias("k"))


def test_columns_are_told_by_where_they_come_from(spark, looks, tmp_path, seed):
    """`k` of the join is `id` of the files."""
    keys = some_keys(pa.int64(), seed, nulls=False)
    df = renamed(stored(spark, tmp_path / "l", keys))
    stats = ek.plan(df, df, "k", workers=WORKERS, scheme="heavy_light").tree.stats
    assert not looks and stats.left.row_count == ROWS and stats.left.counts.max() == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.filter("k > 3"),
        lambda df: df.limit(1000),
        lambda df: df.sample(0.5, seed=1),
        lambda df: df.selectExpr("k + 1 AS k", "id"),
        lambda df: df.selectExpr("cast(k AS int) AS k", "id"),
        lambda df: df.selectExpr("cast(k AS string) AS k", "id"),
        lambda df: df.union(df),
        lambda df: df.distinct(),
        lambda df: df.cache(),
    ],
    ids=["filter", "limit", "sample", "computed", "cast", "text", "union", "distinct", "cached"],
)
def test_whatever_is_more_than_a_scan_is_left_to_spark(spark, tmp_path, seed, change):
    df = change(stored(spark, tmp_path / "l", some_keys(pa.int64(), seed)))
    join = ek.plan(df, df, "k", workers=WORKERS)._request
    explained = statistics_text(join)
    assert parquet_keys.read_keys(join, "left", explained, 1000) is None
    df.unpersist()


def statistics_text(join):
    from evenkeel.spark.inputs import explain_text

    return explain_text(join.left.select("*"))


def test_other_formats_types_names_and_places_are_left_to_spark(spark, looks, monkeypatch, tmp_path, seed):
    keys = some_keys(pa.int32(), seed, nulls=False)
    table = stored(spark, tmp_path / "l", keys)
    right = dimension(spark, "int")
    want = table.join(right, "k").count()
    table.write.partitionBy("k").parquet(str(tmp_path / "by_key"))
    table.write.orc(str(tmp_path / "orc"))
    stored(spark, tmp_path / "case", keys, name="K")
    others = [
        spark.read.parquet(str(tmp_path / "by_key")),
        spark.read.orc(str(tmp_path / "orc")),
        spark.read.schema("k bigint, id bigint").parquet(str(tmp_path / "l")),
        spark.read.schema("k int, id bigint").parquet(str(tmp_path / "case")),
    ]
    for i, df in enumerate(others):
        looks.clear()
        assert ek.join(df, right, "k", workers=WORKERS, scheme="heavy_light").count() == want
        assert len(looks) == 2, i
    for limit in ("MOST_ROWS", "MOST_FILES"):
        looks.clear()
        with monkeypatch.context() as patched:
            patched.setattr(parquet_keys, limit, 2)
            assert ek.join(table, right, "k", workers=WORKERS, scheme="heavy_light").count() == want
        assert len(looks) == 2


def test_paths_with_anything_in_them(spark, looks, tmp_path, seed):
    keys = some_keys(pa.int64(), seed, nulls=False)
    df = stored(spark, tmp_path / "a b%20c#d" / "ü+=1", keys)
    assert ek.plan(df, df, "k", workers=WORKERS).tree.stats.left.row_count == ROWS
    assert not looks


def test_files_that_are_gone_are_for_spark_to_complain_about(spark, tmp_path, seed):
    df = stored(spark, tmp_path / "l", some_keys(pa.int64(), seed))
    (tmp_path / "l" / "1.parquet").unlink()
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        ek.join(df, dimension(spark), "k", workers=WORKERS, scheme="heavy_light").count()


def test_no_rows_and_no_keys(spark, looks, tmp_path):
    empty = stored(spark, tmp_path / "empty", pa.array([], pa.int64()))
    nulls = stored(spark, tmp_path / "nulls", pa.nulls(500, pa.int64()))
    for left in (empty, nulls):
        for how in ("inner", "full"):
            plan = ek.plan(left, nulls, "k", how, workers=WORKERS, scheme="heavy_light")
            assert_same_rows(plan.execute(), left.join(nulls.withColumnRenamed("id", "id_r"), "k", how))
    assert not looks


def test_dates_long_ago_are_joined_as_spark_reads_them(spark, tmp_path):
    days = pa.array([dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(9999, 12, 31)] * 50, pa.date32())
    df = stored(spark, tmp_path / "d", days)
    got = ek.join(df, df, "k", workers=3, scheme="heavy_light")
    assert got.count() == 3 * 50 * 50
