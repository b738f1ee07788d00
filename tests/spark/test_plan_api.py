"""Implementation against implementation: what `ek.plan` and `ek.join` promise, compared with Spark's own joins."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.errors import (
    AmbiguousColumn,
    IncomparableTypes,
    InvalidWorkers,
    OneSidedCondition,
    SchemeNotApplicable,
    UnknownColumn,
    UnknownOption,
    UnparsableCondition,
)
from evenkeel.spark.inputs import explain_text
from evenkeel.spark.metrics import largest_size
from evenkeel.testing import assert_same_rows, zipf_keys

pytestmark = pytest.mark.usefixtures("interpreted")
HOWS = ["inner", "left", "right", "full", "left_semi", "left_anti"]


@pytest.fixture
def frames(spark):
    left = spark.createDataFrame(pa.table({"a": [1, 2, 3], "k": [7, 7, 8], "v": [1.0, 2.0, 3.0]}))
    right = spark.createDataFrame(pa.table({"v": [5.0, 6.0, 6.5], "k": [7, 7, 9], "b": ["x", "y", "z"]}))
    return left, right


@pytest.fixture
def no_broadcast(spark):
    key = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(key)
    spark.conf.set(key, "-1")
    yield
    spark.conf.set(key, before)


def jobs(spark):
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def physical(df):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        df.explain()
    return out.getvalue()


@pytest.mark.parametrize("how", HOWS)
def test_names_give_sparks_columns_and_rows(frames, how):
    left, right = frames
    right = right.withColumnRenamed("v", "w")
    expected = left.join(right, "k", how)
    rows = expected.toArrow()
    for scheme, on in {"auto": "k", "broadcast": ["k"], "heavy_light": "k"}.items():
        got = ek.join(left, right, on, how, scheme=scheme, workers=3)
        assert got.columns == expected.columns
        assert [f.dataType for f in got.schema] == [f.dataType for f in expected.schema]
        assert_same_rows(got, rows)


@pytest.mark.parametrize("how", HOWS)
def test_two_names_in_the_order_asked_for(frames, how):
    left, right = frames[0], frames[0].withColumn("b", F.lit("b")).select("b", "k", "v", "a")
    expected = left.join(right, ["v", "k"], how)
    got = ek.join(left, right, ["v", "k"], how, scheme="hash", workers=3, suffixes=("", "_"))
    assert [c.rstrip("_") for c in got.columns] == expected.columns
    assert_same_rows(got, expected)


def test_conditions_keep_all_columns_and_suffix_shared_ones(frames):
    xy = ("_x", "_y")
    columns = {
        "l.k = r.k": ["a", "k", "v", "v_r", "k_r", "b"],
        "l.a = r.k": ["a", "k", "v", "v_r", "k_r", "b"],
        "k": ["k", "a", "v", "v_r", "b"],
    }
    for on, names in columns.items():
        assert ek.join(*frames, on, scheme="hash").columns == names  # which needs no statistics
    assert ek.join(*frames, "l.k = r.k", "left_semi", scheme="hash").columns == ["a", "k", "v"]
    assert ek.join(*frames, None, "cross").columns == columns["l.k = r.k"]
    assert ek.join(*frames, "l.k = r.k", suffixes=xy, scheme="hash").columns == ["a", "k_x", "v_x", "v_y", "k_y", "b"]
    assert ek.join(*frames, "k", suffixes=xy, scheme="hash").columns == ["k", "a", "v_x", "v_y", "b"]
    expected = frames[0].alias("l").join(frames[1].alias("r"), F.expr("l.k = r.k AND l.v < r.v"), "full")
    assert_same_rows(ek.join(*frames, "l.k = r.k AND l.v < r.v", "full"), expected.toDF(*"abcdef"))


def test_joining_a_frame_with_itself(frames):
    left, _ = frames
    got = ek.join(left, left, "l.a = r.a - 1 AND l.k = r.k", scheme="heavy_light", workers=3)
    assert got.columns == ["a", "k", "v", "a_r", "k_r", "v_r"]
    assert_same_rows(got, [(1, 7, 1.0, 2, 7, 2.0)])
    assert_same_rows(ek.join(left, left, "k", "left_semi", scheme="heavy_light", workers=3), left.select("k", "a", "v"))


def test_names_are_case_insensitive(frames):
    left, right = frames
    upper = right.toDF("V", "K", "B")
    assert ek.join(left, upper, "k", "full", scheme="hash").columns == ["k", "a", "v", "V_r", "B"]
    assert_same_rows(ek.join(left, upper, "L.K = r.k", "left_anti"), left.where("a = 3"))


def test_odd_column_names(spark):
    left = spark.createDataFrame(pa.table({"the key": [1, 2], "a.b": [3, 4], "t`ick": [5, 6], "l": [7, 8]}))
    right = spark.createDataFrame(pa.table({"the key": [2, 3], "a.b": [4, 5], "t`ick": [6, 7], "r": [8, 9]}))
    for on in ("the key", ["the key", "a.b", "t`ick"], "l.`the key` = r.`the key` AND l.`a.b` = r.`a.b`",
               "l.`t``ick` = r.`t``ick`", "l.l = r.r", "l = r"):  # fmt: skip
        got = ek.join(left, right, on, scheme="heavy_light", workers=3)
        assert got.select("`the key`", "`a.b`", "`t``ick`", "l", "r").toArrow().to_pylist() == [
            {"the key": 2, "a.b": 4, "t`ick": 6, "l": 8, "r": 8}
        ]


def test_names_that_look_like_variables(spark):
    """Spark's parser puts values in for them, wherever it reads a text."""
    left = spark.createDataFrame(pa.table({"k": [1, 1, 2], "${spark.app.name}": [1, 2, 3], "distinct": [4, 5, 6]}))
    for scheme in ("heavy_light", "broadcast", "hash"):
        got = ek.join(left, left, "k", "full", scheme=scheme, workers=3)
        assert got.columns == ["k", "${spark.app.name}", "distinct", "${spark.app.name}_r", "distinct_r"]
        assert got.count() == 5


def test_where_keywords_are_reserved(spark):
    left = spark.createDataFrame(pa.table({"k": [1, 1, 2], "select": [1, 2, 3]}))
    for key, value in (("ansi.enabled", "true"), ("ansi.enforceReservedKeywords", "true")):
        spark.conf.set(f"spark.sql.{key}", value)
    try:
        joined = left.join(left.select("k"), "k")  # counted by Spark
        for scheme in ("heavy_light", "broadcast", "hash", "auto"):
            plan = ek.plan(joined, left, "k", "full", scheme=scheme, workers=3)
            assert plan.execute().count() == 9 and "hot: 1: " in plan.explain()
        assert ek.join(left, left, "l.k < r.k", "left", workers=3).count() == 3
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")


def test_struct_fields_are_keys(spark):
    left = spark.createDataFrame(pa.table({"p": [{"id": 1, "q": {"id": 4}}, {"id": 2, "q": {"id": 5}}, None]}))
    right = spark.createDataFrame(pa.table({"id": [2, 5, 9]}))
    for on in ("l.p.id = r.id", "p.id = r.id", "l.p.q.id = r.id"):
        got = ek.join(left, right, on, "full", scheme="heavy_light", workers=3)
        expected = left.alias("l").join(right.alias("r"), F.expr(on.replace("p.id", "l.p.id") if on[0] == "p" else on),
                                        "full")  # fmt: skip
        assert got.columns == ["p", "id"]
        assert_same_rows(got, expected)


DAYS = [dt.datetime(2026, 1, d, h, tzinfo=dt.UTC) for d in (1, 2, 3) for h in (0, 12)]
MIXED = {
    "int and bigint": (pa.array([1, 2, None, -5], pa.int32()), pa.array([2, 2**40, None, -5], pa.int64())),
    "int and decimal": (
        pa.array([1, 2, None, 3], pa.int32()),
        pa.array([Decimal("1.00"), Decimal("2.50"), None, Decimal("3.00")], pa.decimal128(10, 2)),
    ),
    "bigint and double": (pa.array([1, 2, 2**53, 2**53 + 1]), pa.array([1.0, 2.5, float(2**53), float("nan")])),
    "float and double": (pa.array([0.1, -0.0, 2.5], pa.float32()), pa.array([0.1, 0.0, 2.5])),
    "date and timestamp": (pa.array([d.date() for d in DAYS[::2]]), pa.array(DAYS, pa.timestamp("us", tz="UTC"))),
    "decimals": (
        pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal128(4, 1)),
        pa.array([Decimal("1.500"), Decimal("2.001")], pa.decimal128(20, 3)),
    ),
}


@pytest.mark.parametrize("pair", MIXED)
def test_keys_of_different_types_compare_as_in_spark(spark, pair):
    left, right = (
        spark.createDataFrame(pa.table({"k": k, n: np.arange(len(k))})) for n, k in zip("ab", MIXED[pair], strict=True)
    )
    for how in ("inner", "full"):
        expected = left.alias("l").join(right.alias("r"), F.expr("l.k = r.k"), how).toDF("k", "a", "k_r", "b")
        assert_same_rows(ek.join(left, right, "l.k = r.k", how, scheme="heavy_light", workers=3), expected)
        named = ek.join(left, right, "k", how, scheme="heavy_light", workers=3)
        assert named.schema["k"].dataType == left.join(right, "k", how).schema["k"].dataType
        assert_same_rows(named, left.join(right, "k", how))


def test_typed_errors_start_no_job(spark, frames):
    left, right = frames
    twice = left.select("a", F.col("k"), F.col("k").alias("K"))
    maps = left.withColumn("m", F.create_map("a", "k"))
    wrong = [
        (IncomparableTypes, (left, right, "l.a = r.b"), {}),
        (IncomparableTypes, (maps, maps, "m"), {}),
        (AmbiguousColumn, (left, right, "k = r.k"), {}),
        (AmbiguousColumn, (twice, right, "l.K = r.k"), {}),
        (AmbiguousColumn, (left.select("*", "k"), right, "l.a = r.k"), {}),
        (AmbiguousColumn, (left, right, "l.k = r.k"), {"suffixes": ("", "")}),
        (AmbiguousColumn, (left.withColumn("v_r", F.lit(1)), right, "k"), {}),
        (UnknownColumn, (left, right, "l.q = r.k"), {}),
        (UnknownColumn, (left, right, ["a"]), {}),
        (UnparsableCondition, (left, right, "l.k = = r.k"), {}),
        (UnparsableCondition, (left, right, None), {}),
        (UnparsableCondition, (left, right, 5), {}),
        (UnparsableCondition, (left, right, "l.k + r.k"), {}),
        (UnparsableCondition, (left, right, "l.k = r.k AND l.k < 9 * rand()"), {}),
        (UnparsableCondition, (left, right, "l.k = r.k + cast(2 * rand() AS int)"), {}),
        (OneSidedCondition, (left, right, "l.k = l.a"), {}),
        (UnknownOption, (left, right, "k", "sideways"), {}),
        (UnknownOption, (left, right, "k"), {"scheme": "magic"}),
        (InvalidWorkers, (left, right, "k"), {"workers": 0}),
        (SchemeNotApplicable, (left, right, "l.k < r.k"), {"scheme": "heavy_light"}),
        (SchemeNotApplicable, (left, right, "k"), {"scheme": "hash", "workers": 2**21}),
    ]
    before = jobs(spark)
    for kind, given, options in wrong:
        with pytest.raises(kind, match="Hint: ") as raised:
            ek.plan(*given, **options)
        assert type(raised.value) is kind, given[2:]
    assert jobs(spark) <= before
    left.count()
    assert jobs(spark) - before, "the tracker would have seen a job"


def zipf_frames(spark, rows, exponent, seed):
    return [
        spark.createDataFrame(pa.table({"k": zipf_keys(rows, rows // 4, exponent, seed + i), n: np.arange(rows)}))
        for i, n in enumerate("ab")
    ]


def test_even_keys_are_left_to_spark(spark, no_broadcast, seed):
    left, right = zipf_frames(spark, 20_000, 0.0, seed)
    plan = ek.plan(left, right, "k", workers=4)
    assert plan.native and plan.scheme == "hash"
    assert "left to Spark untouched" in plan.explain() and "Spark's AQE: nothing to split" in plan.explain()
    assert "REPARTITION_BY_ID" not in physical(plan.execute()) and "_region" not in physical(plan.execute())
    routed = physical(ek.plan(left, right, "k", scheme="heavy_light", workers=4).execute())
    assert "_region" in routed and "SortMergeJoin" in routed
    assert plan.execute().count() == left.join(right, "k").count()


def test_skewed_keys_are_not(spark, no_broadcast, seed):
    left, right = zipf_frames(spark, 20_000, 1.2, seed)
    plan = ek.plan(left, right, "k", workers=8)
    assert plan.scheme == "heavy_light" and not plan.native and plan.replication > 1
    assert plan.predicted.skew_degree < 1.2
    text = plan.explain()
    n = [f.where("k = 0").count() for f in (left, right)]
    assert f"  hot: 0: ~{n[0]:,} x ~{n[1]:,} rows" in text
    for line in ("\n   hash ", "\n   broadcast ", "\n-> heavy_light ", "broadcasting is switched off in this session",
                 "Spark's AQE would not split it"):  # fmt: skip
        assert line in text
    assert repr(plan) == text and "<svg" in plan._repr_html_() and "heavy_light" in plan._repr_html_()


@pytest.mark.parametrize("scheme", ["hash", "broadcast", "heavy_light"])
def test_measured_loads_add_up(spark, scheme, seed):
    left, right = zipf_frames(spark, 3000, 1.1, seed)
    plan = ek.plan(left, right, "k", scheme=scheme, workers=8)
    ran, counted = plan.measure(), plan.measure(run=False)
    assert ran.regions == 8 and ran.input_rows == 6000
    assert ran.rows_out.sum() == plan.execute().count() == left.join(right, "k").count()
    assert ran.rows_in.sum() == pytest.approx(6000 * ran.replication)
    copied = {"hash": 6000, "broadcast": 3000 + 8 * 3000}.get(scheme)
    assert copied in (None, ran.rows_in.sum()) and (copied or ran.rows_in.sum() > 6000)
    assert np.array_equal(ran.rows_in, counted.rows_in) and np.array_equal(ran.rows_out, counted.rows_out)
    assert "measured" in repr(ran) and "█" in repr(ran) and "<svg" in ran._repr_html_()


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_million_identical_rows(spark, no_broadcast, how):
    left = spark.range(1_000_000).select(F.lit(5).alias("k"), F.lit("same").alias("v"))
    right = spark.createDataFrame(pa.table({"k": pa.array([5, 5, 6], pa.int32()), "w": [1, 2, 3]}))
    got = ek.join(left, right, "k", how, workers=4)
    assert got.count() == left.join(right, "k", how).count() == 2_000_000 + (how == "full")


TASKS = "total (min, med, max (stageId: taskId))"


@pytest.mark.parametrize(
    ("said", "most"),
    [
        (f"{TASKS}\n2.0 GiB (64.1 MiB, 65.0 MiB, 65.5 MiB (stage 8.0: task 12))", 65.5 * 2**20),
        (f"{TASKS}\n1024.0 B (32.0 B, 32.0 B, 1,032.0 B (stage 8.0: task 11))", 1032),
        ("36.3 KiB", 36.3 * 2**10),
    ],
)
def test_sizes_as_spark_words_them(said, most):
    assert largest_size(said) == pytest.approx(most)


def test_copied_rows_are_not_shuffled_by_their_key(spark):
    """They are those of hot keys: compared after a shuffle, all rows of a key would meet in one task."""
    left, right = (spark.range(3000).selectExpr("IF(id % 2 = 0, 7, id) AS k", "id") for _ in range(2))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        joined = ek.join(left, right, "k", "full", scheme="heavy_light", workers=8)
        text = explain_text(joined)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert "BroadcastHashJoin" in text and "LeftAnti, BuildRight" in text
    assert not [line for line in text.splitlines() if "SortMergeJoin" in line and "LeftAnti" in line]
