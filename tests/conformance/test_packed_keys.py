"""Conformance, against Spark's own join: keys that travel inside the region's number come out as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenkeel as ek
from evenkeel.local import KeyAndRegion, KeyInNumber
from evenkeel.testing import assert_same_rows

KINDS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def table(keys, kind, seed):
    rng = np.random.default_rng(seed)
    share = np.array([0.3] + [0.7 / (len(keys) - 1)] * (len(keys) - 1))
    drawn = rng.choice(np.array(keys, dtype=np.int64), 600, p=share)
    return pa.table({"k": pa.array(drawn, mask=rng.random(600) < 0.05).cast(kind), "id": np.arange(600)})


def plain(left, right):
    return left.join(right.withColumnRenamed("id", "id_r"), "k")


def edges(bits):
    return [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 2), -7 - 2 ** (bits - 3)]


@pytest.mark.parametrize("workers", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int"])
def test_small_whole_numbers_are_packed_by_their_type(spark, seed, kind, workers):
    arrow = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32()}[kind]
    left, right = (spark.createDataFrame(table(edges(KINDS[kind]), arrow, seed + i)) for i in (0, 1))
    plan = ek.plan(left, right, "k", workers=workers, scheme="heavy_light")
    assert plan.tree.local.name == "merge_on_packed"
    assert plan.execute().schema["k"].dataType == left.schema["k"].dataType
    assert_same_rows(plan.execute(), plain(left, right))


@pytest.mark.parametrize("workers", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("more", [0, 1])
def test_large_whole_numbers_are_packed_as_far_as_they_fit(spark, seed, tmp_path, workers, more):
    """Keys of files are all read, so how large they are is certain."""
    bits = min(64, 64 - (workers - 1).bit_length() + more)
    plan, frames = planned(spark, seed, tmp_path, [*edges(bits), *range(100, 200)], workers)
    packs = bits <= 64 - (workers - 1).bit_length()
    assert (plan.tree.local.packing == KeyAndRegion(workers, checked=True)) == packs
    assert packs or plan.tree.local.name == "merge_on_hash"
    assert_same_rows(plan.execute(), plain(*frames))


def planned(spark, seed, path, keys, workers):
    """A join of two files with these keys, and the files."""
    frames = []
    for i in (0, 1):
        pq.write_table(table(keys, pa.int64(), seed + i), path / f"{i}.parquet")
        frames.append(spark.read.parquet(str(path / f"{i}.parquet")))
    return ek.plan(*frames, "k", workers=workers, scheme="heavy_light"), frames


@pytest.mark.parametrize("workers", [1, 5, 64])
@pytest.mark.parametrize("least", [0, -3, -(2**63), 2**62, 2**63 - 2**20])
@pytest.mark.parametrize("more", [0, 1])
def test_keys_of_a_narrow_range_are_the_number_itself(spark, seed, tmp_path, workers, least, more):
    """As wide a range as an INT holds, wherever it lies; with one key more it does not."""
    room = 2**31 // workers
    least = min(least, 2**63 - 1 - room)
    most = least + room - 1 + more
    plan, frames = planned(spark, seed, tmp_path, [least, most, *range(least + 7, least + 90)], workers)
    found = plan.tree.local.packing
    assert isinstance(found, KeyInNumber) == (more == 0)
    if more == 0:
        assert least <= found.least and found.most <= most and found.checked
    assert_same_rows(plan.execute(), plain(*frames))


def test_measured_as_any_other_join(spark, seed):
    left, right = (spark.createDataFrame(table(list(range(40)), pa.int32(), seed + i)) for i in (0, 1))
    plan = ek.plan(left, right, "k", workers=8, scheme="heavy_light")
    assert plan.tree.local.name == "merge_on_packed"
    run, counted = plan.measure(), plan.measure(run=False)
    assert np.array_equal(run.rows_out, counted.rows_out) and np.array_equal(run.rows_in, counted.rows_in)
    assert run.rows_out.sum() == plain(left, right).count()


@pytest.mark.parametrize(
    ("on", "how"),
    [("k", "left"), ("k", "full"), ("k", "left_semi"), ("l.k <=> r.k", "inner"), (["k", "id"], "inner"),
     ("l.k = r.k AND l.id < r.id", "inner")],
)  # fmt: skip
def test_left_unpacked_where_the_key_is_needed_or_may_be_null(spark, seed, on, how):
    left = spark.createDataFrame(table(list(range(40)), pa.int32(), seed))
    assert ek.plan(left, left, on, how, workers=8, scheme="heavy_light").tree.local.name != "merge_on_packed"


def test_keys_of_two_types_and_computed_ones(spark, seed):
    left = spark.createDataFrame(table(edges(8), pa.int8(), seed))
    right = spark.createDataFrame(table(edges(8), pa.int32(), seed + 1)).withColumnRenamed("k", "n")
    joined = ek.join(left, right, "l.k + 1 = r.n - 1", workers=8, scheme="heavy_light")
    want = left.join(right.withColumnRenamed("id", "id_r"), left["k"] + 1 == right["n"] - 1)
    assert [f.dataType for f in joined.schema] == [f.dataType for f in want.schema]
    assert_same_rows(joined, want)


def test_what_is_written_beside_a_column_stays(spark, seed):
    left = spark.createDataFrame(table(edges(16), pa.int32(), seed)).withMetadata("k", {"comment": "the user"})
    joined = ek.join(left, left, "k", workers=8, scheme="heavy_light")
    assert joined.schema["k"].metadata == {"comment": "the user"}


@pytest.mark.parametrize(
    ("kept", "other"), [(True, 39), (False, 40), (False, -1), (False, 2**63 - 1), (False, -(2**63))]
)
def test_files_that_change_between_plan_and_join_are_noticed(spark, seed, tmp_path, kept, other):
    path = tmp_path / "t.parquet"
    pq.write_table(table(list(range(40)), pa.int64(), seed), path)
    df = spark.read.parquet(str(path))
    joined = ek.join(df, df, "k", workers=64, scheme="heavy_light")
    pq.write_table(table([39 if kept else other, 3], pa.int64(), seed), path)
    spark.catalog.refreshByPath(str(path))
    if kept:  # where all keys were from 0 to 39
        assert joined.count() == plain(df, df).count()
    else:
        with pytest.raises(Exception, match="have changed since"):
            joined.count()


@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=50), st.integers(1, 2**16), st.integers(0, 23)
)
def test_keys_that_are_shifted_are_told_apart(start, workers, shift):
    """Numbers in a row, and multiples of powers of two: what ids and times are made of."""
    packing = KeyAndRegion(workers)
    for first in start[:3]:
        assert packing.tells_apart(np.arange(first, first + 500, dtype=np.int64) << np.int64(shift))


def test_large_keys_that_files_get_later_are_noticed(spark, seed, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table([0, 2**40, 2**57 - 1, *range(40)], pa.int64(), seed), path)
    df = spark.read.parquet(str(path))
    plan = ek.plan(df, df, "k", workers=64, scheme="heavy_light")
    assert plan.tree.local.packing == KeyAndRegion(64, checked=True)
    pq.write_table(table([2**57, 3], pa.int64(), seed), path)
    spark.catalog.refreshByPath(str(path))
    with pytest.raises(Exception, match="have changed since"):
        plan.execute().count()


def test_keys_that_fold_to_the_same_are_not_packed(spark, tmp_path):
    keys = np.arange(3000, dtype=np.int64) * (2**25 - 1)
    assert not KeyAndRegion(64).tells_apart(keys)
    pq.write_table(pa.table({"k": keys, "id": np.arange(3000)}), tmp_path / "t.parquet")
    df = spark.read.parquet(str(tmp_path / "t.parquet"))
    plan = ek.plan(df, df, "k", workers=64, scheme="heavy_light")
    assert plan.tree.local.name == "merge_on_hash" and plan.execute().count() == 3000
