"""Against the definition: requests at the edge of what can be planned are answered in words, or by the safe choice."""

from __future__ import annotations

import pandas as pd
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.errors import (
    AmbiguousColumn,
    NotMeasurable,
    SchemeNotApplicable,
    TooManyPairs,
    UnknownColumn,
    UnknownOption,
    UnreadableInput,
    UnusableBand,
)
from evenkeel.spark.session import settings
from evenkeel.testing import assert_same_rows

pytestmark = pytest.mark.usefixtures("interpreted")


def test_only_batch_frames(spark):
    frame = spark.range(3)
    with pytest.raises(UnreadableInput, match="pandas"):
        ek.join(frame, pd.DataFrame({"id": [1]}), "id")
    with pytest.raises(UnreadableInput, match="is a stream"):
        ek.join(spark.readStream.format("rate").load(), frame, "l.value = r.id")
    with pytest.raises(UnknownOption, match="suffixes"):
        ek.join(frame, frame, "id", suffixes="_r")
    with pytest.raises(UnknownOption, match="suffixes"):
        ek.join(frame, frame, "l.id = r.id", suffixes=("", None))


@pytest.mark.parametrize(("small_first", "build"), [(True, "left"), (False, "right")])
def test_an_asked_for_broadcast_copies_the_small_side(spark, small_first, build):
    small, large = spark.range(3), spark.range(5000)
    frames = (small, large) if small_first else (large, small)
    plan = ek.plan(*frames, "id", scheme="broadcast", workers=4)
    assert plan.tree.problem.build == build
    assert plan.execute().count() == 3


def test_a_join_without_equality_is_balanced_too(spark):
    plan = ek.plan(spark.range(300), spark.range(400), "l.id < r.id", scheme="one_bucket", workers=7)
    assert "one_bucket" in plan.explain() and plan._repr_html_()
    load = plan.measure()
    assert load.rows_out.sum() == sum(min(i, 300) for i in range(400))
    assert load.replication == pytest.approx(plan.replication, rel=0.02)


def test_bands_that_cannot_be_are_refused(spark):
    left, right = spark.range(3), spark.range(4)
    times = spark.sql("SELECT timestamp'2026-01-01' AS t")
    wrong = [
        (UnusableBand, (left, right, "l.id BETWEEN r.id + 5 AND r.id - 5"), "above its upper bound"),
        (UnusableBand, (left, right, "abs(l.id - r.id) <= -1"), "above its upper bound"),
        (UnusableBand, (times, times, "l.t <= r.t + INTERVAL 1 MONTH 2 DAYS"), "mixes months"),
        (UnusableBand, (left, right, "l.id < r.id + cast('NaN' AS double)"), "not a number"),
    ]
    for kind, given, said in wrong:
        with pytest.raises(kind, match=said) as raised:
            ek.plan(*given)
        assert "Hint: " in str(raised.value)


def test_a_theta_join_of_huge_inputs_names_its_pairs(spark):
    huge = spark.range(3 * 10**6)
    with pytest.raises(TooManyPairs, match=r"9e\+12 pairs.*\n\nHint: .*equality or a range"):
        ek.plan(huge, huge, "levenshtein(cast(l.id AS string), cast(r.id AS string)) < 3", workers=16)


def test_counting_needs_equalities_alone(spark):
    plan = ek.plan(spark.range(3), spark.range(4), "l.id = r.id AND l.id + r.id > 2", scheme="hash", workers=2)
    with pytest.raises(NotMeasurable, match="measure"):
        plan.measure(run=False)
    assert plan.measure().rows_out.sum() == 1


@pytest.mark.parametrize("how", ["left", "full", "left_semi", "left_anti"])
def test_measured_output_counts_no_copy_twice(spark, how):
    left = spark.createDataFrame([(7, i) for i in range(40)] + [(9, i) for i in range(40)], "k int, a int")
    right = spark.createDataFrame([(7, i) for i in range(30)], "k int, b int")
    plan = ek.plan(left, right, "l.k = r.k AND l.a < r.b", how, scheme="heavy_light", workers=6)
    assert plan.measure().rows_out.sum() <= plan.execute().count()


@pytest.mark.parametrize("how", ["inner", "full", "left_anti"])
def test_collated_strings_meet_though_their_hashes_differ(spark, how):
    left = spark.sql("SELECT x COLLATE UTF8_LCASE AS k, i FROM VALUES ('A', 1), ('a', 2), ('b', 3), ('c', 1) t(x, i)")
    right = spark.sql("SELECT x COLLATE UTF8_LCASE AS k, j FROM VALUES ('a', 1), ('A', 2), ('B', 3), ('d', 1) t(x, j)")
    expected = left.join(right, "k", how).count()
    plan = ek.plan(left, right, "k", how, workers=5)
    assert plan.native and plan.execute().count() == expected and "left to Spark" in plan.explain()
    assert ek.join(left, right, "k", how, scheme="one_bucket", workers=5).count() == expected
    both = ek.join(left, right, "l.k = r.k AND l.i = r.j", how, scheme="heavy_light", workers=5)
    assert both.count() == left.alias("l").join(right.alias("r"), F.expr("l.k = r.k AND l.i = r.j"), how).count()
    with pytest.raises(SchemeNotApplicable):
        ek.plan(left, right, "k", how, scheme="heavy_light")


def test_values_that_spark_does_not_compare_decide_what_matched(spark):
    """A hot key is copied, and what matched is remembered by the values of the condition's columns."""
    left = spark.sql(
        "SELECT 0 AS k, parse_json(concat('{\"a\":', id % 5, '}')) AS v, named_struct('m', map('a', id % 5)) AS s, "
        "make_interval(0, 0, 0, cast(id % 5 AS int)) AS i, array(map('a', id % 5)) AS m, "
        "named_struct('d', array(IF(id % 2 = 0, 0D, double('-0.0')))) AS d FROM range(12)"
    )
    right = spark.sql("SELECT 0 AS k, cast(id % 3 AS int) AS c FROM range(8)")
    for residual in (
        "variant_get(l.v, '$.a', 'int') < r.c",
        "l.s.m['a'] < r.c",
        "DATE'2020-01-01' + l.i < date_add(DATE'2020-01-01', r.c)",
        "l.m[0]['a'] < r.c",
        "cast(l.d.d[0] AS string) = '-0.0' AND r.c = 1",
    ):
        on = f"l.k = r.k AND {residual}"
        expected = left.alias("l").join(right.alias("r"), F.expr(on), "full")
        assert ek.join(left, right, on, "full", scheme="heavy_light", workers=4).count() == expected.count(), on


def test_pairs_in_arrow_keep_the_columns_comments(spark):
    """And columns without NULLs stay so, as in a join of Spark's."""
    rows = spark.sql("SELECT cast(id AS int) AS a, cast(id * 7 AS int) AS b FROM range(30)")
    left = rows.select(F.col("a").alias("a", metadata={"comment": "first"}), "b")
    right = rows.selectExpr("a AS c", "b AS d", "named_struct('x', a, 'x', b) AS twice")
    on = "l.a < r.c AND l.b + 90 > r.d"
    plan = ek.plan(left, right.drop("twice"), on, scheme="one_bucket", workers=3)
    assert plan.tree.local.operator == "arrow"
    assert plan.execute().schema["a"].metadata == {"comment": "first"}
    spark_own = left.alias("l").join(right.drop("twice").alias("r"), F.expr(on))
    assert [f.nullable for f in plan.execute().schema] == [f.nullable for f in spark_own.schema]
    assert_same_rows(plan.execute(), spark_own)
    both = ek.plan(left, right, on, scheme="one_bucket", workers=3)
    assert both.tree.local.operator != "arrow", "Spark puts no struct with two fields of one name into Arrow"
    assert both.execute().count() == plan.execute().count()


@pytest.mark.parametrize("how", ["right", "left_semi"])
def test_clauses_about_one_side_guard_its_keys(spark, how):
    """A cast or a division that fails for rows which another clause leaves out."""
    left = spark.createDataFrame([("1", 0), ("2", 1), ("x", 2), ("3", 5)], "s string, x int")
    right = spark.createDataFrame([(1, 1.0), (2, 2.0), (3, 9.0)], "k int, y double")
    for on in ("l.s RLIKE '^[0-9]+$' AND cast(l.s AS int) = r.k", "l.x <> 0 AND 10 / l.x < r.y"):
        expected = left.alias("l").join(right.alias("r"), F.expr(on), how)
        for scheme in ("auto", "one_bucket"):
            assert_same_rows(ek.join(left, right, on, how, scheme=scheme, workers=4), expected)


def test_structs_compare_by_place(spark):
    rows = spark.sql("SELECT cast(id % 5 AS int) AS a, id % 3 AS b FROM range(30)")
    left = rows.selectExpr("a", "b", "named_struct('f', a, 'g', named_struct('h', b)) AS s")
    right = rows.selectExpr("a AS x", "b AS y", "named_struct('p', a, 'q', named_struct('r', b)) AS t")
    for on in ("struct(l.a, l.b) = struct(r.x, r.y)", "(l.a, l.b) <=> (r.x, r.y)", "l.s = r.t"):
        expected = left.alias("l").join(right.alias("r"), F.expr(on), "full")
        assert_same_rows(ek.join(left, right, on, "full", scheme="heavy_light", workers=3), expected)


def test_whole_numbers_beside_floats(spark):
    """Without ANSI they are compared as floats, which round them."""
    left = spark.sql("SELECT cast(16777210 + id AS bigint) AS k, id AS n FROM range(20)")
    right = spark.sql("SELECT cast(16777210 + id AS float) AS k, id AS m FROM range(20)")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for on in ("l.k <= r.k", "l.k >= r.k AND l.k <= r.k", "abs(l.k - r.k) <= 0.5"):
            expected = left.alias("l").join(right.alias("r"), F.expr(on))
            assert ek.join(left, right, on, scheme="m_bucket", workers=8).count() == expected.count(), on
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_names_whose_case_matters(spark):
    left = spark.createDataFrame([(1, 10, 5), (2, 20, 6)], "k int, K int, v int")
    right = spark.createDataFrame([(1, 7), (20, 8)], "K int, V int")
    with pytest.raises(AmbiguousColumn, match="more than one column called"):
        ek.join(left, right, "l.v = r.V")
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        for on in ("l.k = r.K", "K", "l.K = r.K"):
            joined = ek.join(left, right, on, scheme="heavy_light", workers=2)
            expected = left.alias("l").join(right.alias("r"), on if on == "K" else F.expr(on))
            assert_same_rows(joined, expected)
        assert joined.columns == ["k", "K", "v", "K_r", "V"]
        with pytest.raises(UnknownColumn):
            ek.join(left, right, "k")
        many = ek.multi_join({"A": left, "B": right}, "A.k = B.K", workers=2)
        assert many.columns == ["k", "A_K", "v", "B_K", "V"] and many.count() == 1
