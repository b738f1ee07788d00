"""Conformance, against an oracle (DuckDB): bands, inequalities and theta, for every scheme and join type."""

from __future__ import annotations

import datetime as dt
import importlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.oracle import duck_join

import evenkeel as ek
from evenkeel.spark.session import settings
from evenkeel.testing import assert_same_rows

bin_width = importlib.import_module("evenkeel.plan.bin_width")  # `evenkeel.plan` is a function first
HOWS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
SCHEMES = ["one_bucket", "m_bucket"]
WORKERS = 5

CONDITIONS = {
    "band": "abs(l.k - r.k) <= 3",
    "exclusive": "abs(l.k - r.k) < 2",
    "asymmetric": "l.k BETWEEN r.k - 2 AND r.k + 5",
    "open below": "l.k > r.k - 4 AND l.k <= r.k",
    "inequality": "2 * l.k < r.k",
    "equality and band": "l.g = r.g AND abs(l.k - r.k) <= 2",
    "equality and inequality": "l.g = r.g AND l.k >= r.k",
    "two inequalities": "l.k < r.k AND l.n > r.n",
    "band and theta": "abs(l.k - r.k) <= 9 AND (l.n + r.n) % 3 = 1",
}


def table(keys, seed):
    rng = np.random.default_rng(seed)
    n = len(keys)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "g": pa.array([None if v == 3 else int(v) for v in rng.integers(0, 4, n)], pa.int32()),
            "n": pa.array(rng.integers(0, 7, n), pa.int32()),
        }
    )


def mixed(rows, seed):
    """Clustered, with one hot key, some NULLs and some that match nothing."""
    rng = np.random.default_rng(seed)
    keys = np.concatenate([rng.integers(0, 20, rows // 2), np.full(rows // 4, 7), rng.integers(500, 900, rows // 4)])
    rng.shuffle(keys)
    return [None if u < 0.08 else int(k) for k, u in zip(keys, rng.random(len(keys)), strict=True)]


EVERY_HOW = ("band", "equality and band", "two inequalities")


@pytest.mark.parametrize(
    ("condition", "how"),
    [(c, h) for c in CONDITIONS for h in (HOWS if c in EVERY_HOW else ("inner", "full", "left_semi"))],
)
def test_conditions(spark, interpreted, condition, how, seed, monkeypatch):
    on = CONDITIONS[condition]
    left, right = table(mixed(60, seed), seed), table(mixed(44, seed + 1), seed + 1)
    expected = duck_join(left, right, on, how)
    frames = [spark.createDataFrame(t) for t in (left, right)]
    also = SCHEMES[(HOWS.index(how) + list(CONDITIONS).index(condition)) % 2]
    for scheme, most in (("equi_weight", bin_width.MOST_BUILD_BYTES), (also, 0)):
        monkeypatch.setattr(bin_width, "MOST_BUILD_BYTES", most)  # none: bins before the shuffle
        assert_same_rows(ek.join(*frames, on, how, scheme=scheme, workers=WORKERS), expected)


@pytest.mark.parametrize("workers", [2, 7])
def test_bins_before_the_shuffle_cross_zero(spark, interpreted, workers, seed, monkeypatch):
    """Their numbers are taken modulo what the region leaves of an integer, and bin -1 is not bin 0 in that either."""
    monkeypatch.setattr(bin_width, "MOST_BUILD_BYTES", 0)
    rng = np.random.default_rng(seed)
    left, right = (table(rng.integers(-9, 9, 300).tolist(), seed + i) for i in (1, 2))
    frames = [spark.createDataFrame(t) for t in (left, right)]
    for condition in ("asymmetric", "equality and band"):
        on = CONDITIONS[condition]
        plan = ek.plan(*frames, on, "left", scheme="equi_weight", workers=workers)
        assert plan.tree.local.before
        assert_same_rows(plan.execute(), duck_join(left, right, on, "left"))


def test_bins_before_the_shuffle_are_counted(spark, interpreted, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    frames = [spark.createDataFrame(table(rng.integers(0, 3000, 2000).tolist(), seed + i)) for i in (1, 2)]
    after = ek.plan(*frames, CONDITIONS["band"], scheme="equi_weight", workers=WORKERS)
    monkeypatch.setattr(bin_width, "MOST_BUILD_BYTES", 0)
    before = ek.plan(*frames, CONDITIONS["band"], scheme="equi_weight", workers=WORKERS)
    assert (after.tree.local.before, before.tree.local.before) == (False, True)
    counted = before.measure()
    assert counted.rows_out.tolist() == after.measure().rows_out.tolist()
    assert counted.rows_in.sum() > after.measure().rows_in.sum()
    assert before.replication == pytest.approx(counted.replication, rel=0.05)
    assert "before the shuffle" in before.explain()


@pytest.mark.parametrize("how", HOWS)
def test_theta(spark, interpreted, how, seed):
    left, right = table(mixed(30, seed), seed), table(mixed(22, seed + 1), seed + 1)
    frames = [spark.createDataFrame(t) for t in (left, right)]
    on = "(l.k * 3 + r.k) % 7 = 2 OR l.n = r.n + 4"
    expected = duck_join(left, right, on, how)
    for scheme, workers in (("one_bucket", WORKERS), ("auto", 3), ("broadcast", WORKERS)):  # 3: stripes of 2 and 1
        assert_same_rows(ek.join(*frames, on, how, scheme=scheme, workers=workers), expected)


def test_names_that_are_alike(spark, interpreted, seed):
    """A function of both sides: nothing to route by, so every pair is looked at once."""
    names = ["anna", "ana", "hanna", "hannah", "otto", "ottó", "", None, "bob", "bobby"]
    left, right = (pa.table({"name": names[i:] * 2, "id": range(2 * len(names[i:]))}) for i in (0, 3))
    frames = [spark.createDataFrame(t) for t in (left, right)]
    on = "levenshtein(l.name, r.name) < 3"
    for how in ("inner", "full", "left_anti"):
        expected = duck_join(left, right, on, how)
        assert_same_rows(ek.join(*frames, on, how, workers=WORKERS), expected)


SHAPES = {
    "uniform": (list(range(0, 90, 2)), list(range(0, 90, 3))),
    "sorted and reversed": (list(range(40)), list(range(40, 0, -1))),
    "constant": ([5] * 40, [6] * 30),
    "apart": (list(range(30)), list(range(1000, 1030))),
    "left empty": ([], [1, 2, 2]),
    "right empty": ([1, 2, 2], []),
    "all NULL": ([None] * 9, [1, None, 2]),
    "zipf": ([int(60 / (1 + i % 17)) for i in range(60)], [int(60 / (1 + i % 13)) for i in range(50)]),
    "extremes": ([-(2**63), 2**63 - 1, 0, 2**62, -5], [-(2**63) + 2, 2**63 - 3, 1, 2**62 + 1, -(2**62)]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["inner", "full", "left_anti"])
def test_shapes(spark, interpreted, shape, how, seed, monkeypatch):
    if how == "full":
        monkeypatch.setattr(bin_width, "MOST_BUILD_BYTES", 0)
    left, right = (table(k, seed + i) for i, k in enumerate(SHAPES[shape]))
    frames = [spark.createDataFrame(t) for t in (left, right)]
    wide = "abs(l.k::HUGEINT - r.k::HUGEINT) <= 3"  # DuckDB too would overflow at the extremes
    expected = duck_join(left, right, wide, how)
    for scheme in ("m_bucket", "equi_weight", "auto"):
        got = ek.join(*frames, "abs(l.k - r.k) <= 3", how, scheme=scheme, workers=WORKERS)
        assert_same_rows(got, expected)


NAN, INF = float("nan"), float("inf")
DAY = dt.datetime(2026, 3, 28, 22, tzinfo=dt.UTC)
TYPED = {
    "double": (pa.float64(), [0.0, -0.0, 0.5, 1.0, 1e300, -1e300, NAN, INF, -INF, None], "abs(l.k - r.k) <= 0.5"),
    "double compared": (pa.float64(), [0.0, 0.5, 1.0, NAN, INF, -INF, None], "l.k >= r.k - 0.5 AND l.k <= r.k"),
    "double below": (pa.float64(), [0.0, 0.5, 1.0, NAN, INF, -INF, None], "l.k < r.k"),
    "float": (
        pa.float32(),
        [0.1, 0.2, 0.30000001, 16777216.0, 16777217.0, None],
        "l.k BETWEEN r.k - 0.1 AND r.k + 0.1",
    ),
    "decimal": (
        pa.decimal128(20, 4),
        [Decimal("0.0001"), Decimal("0.5"), Decimal("0.4999"), None],
        "abs(l.k - r.k) < 0.5",
    ),
    "date": (pa.date32(), [dt.date(2024, 2, d) for d in (1, 5, 6, 28, 29)] + [None], "l.k BETWEEN r.k - 5 AND r.k"),
    "date, months": (
        pa.date32(),
        [dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 31), dt.date(2023, 3, 1), None],
        "l.k > r.k AND l.k <= r.k + INTERVAL 1 MONTH",
    ),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [DAY + dt.timedelta(minutes=m) for m in (0, 4, 5, 6, 600, 1440)] + [None],
        "l.k BETWEEN r.k - INTERVAL 5 MINUTES AND r.k",
    ),
    "timestamps subtracted": (
        pa.timestamp("us", tz="UTC"),
        [DAY + dt.timedelta(minutes=m) for m in (0, 4, 5, 6, 600, 1440)] + [None],
        "l.k - r.k < INTERVAL 6 MINUTES AND l.k - r.k > INTERVAL -1 MINUTES",
    ),
}


@pytest.mark.parametrize("kind", TYPED)
def test_types(spark, interpreted, kind, seed):
    arrow, values, on = TYPED[kind]
    rng = np.random.default_rng(seed)
    left, right = (
        pa.table({"k": pa.array([values[i] for i in rng.integers(0, len(values), rows)], arrow), "n": range(rows)})
        for rows in (23, 17)
    )
    frames = [spark.createDataFrame(t) for t in (left, right)]
    for how in ("inner", "full"):
        if kind == "float":  # DuckDB adds a float and a decimal as floats, Spark as doubles
            rows = frames[0].alias("l").join(frames[1].alias("r"), F.expr(on), how)
            expected = rows.toDF("k", "n", "k_r", "n_r")
        else:
            expected = duck_join(left, right, on.replace("INTERVAL -1", "INTERVAL (-1)"), how)
        for scheme in ("m_bucket", "equi_weight"):
            assert_same_rows(ek.join(*frames, on, how, scheme=scheme, workers=WORKERS), expected)


def test_hours_of_a_wall_clock_that_is_put_back(spark, interpreted, seed):
    """Spark adds the hour to the wall clock and then looks for the point in time: two hours later, once a year."""
    seconds = np.random.default_rng(seed).integers(0, 86_400, (2, 400)).tolist()
    left, right = (spark.createDataFrame([(s,) for s in side], "s int") for side in seconds)
    left = left.selectExpr("timestamp'2024-11-02 16:00:00Z' + make_dt_interval(0, 0, 0, s) AS t", "s")
    right = right.selectExpr("timestamp_ntz'2024-11-02 12:00:00' + make_dt_interval(0, 0, 0, s) AS n", "s")
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        for on in ("l.t BETWEEN r.n AND r.n + INTERVAL 1 HOUR", "l.t > r.n - INTERVAL 1 HOUR AND l.t <= r.n"):
            joined = ek.join(left, right, on, scheme="equi_weight", workers=8)
            expected = left.alias("l").join(right.alias("r"), F.expr(on))
            assert_same_rows(joined, expected)
