"""Conformance, against Spark's own join: requests drawn at random, for what nobody thought of writing down.

Key types, conditions, join types, schemes, numbers of workers, sizes and settings are drawn together: bands across
zero with two workers, stripes of one region beside wider ones, floats beside whole numbers without ANSI.
"""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.errors import EvenkeelError
from evenkeel.testing import assert_same_rows

HOWS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
SCHEMES = ["auto", "auto", "hash", "broadcast", "heavy_light", "one_bucket", "m_bucket", "equi_weight"]
NUMBERS = ["int", "bigint", "smallint", "double", "float", "decimal(10,2)"]
TIMES = ["date", "timestamp", "timestamp_ntz"]
EQUAL = [
    "l.k = r.k", "l.k <=> r.k", "l.k = r.k AND l.g <=> r.g", "l.k = r.k AND l.n < r.n", "l.k = r.k AND l.n > 10",
    "l.k <=> r.k AND (l.n + r.n) % 3 = 1",
]  # fmt: skip
THETA = ["l.k = r.k OR l.n = r.n", "NOT l.k < r.k", "l.g IN (r.g, r.n)", "l.k < r.k AND l.n > r.n", "l.k >= r.k"]
BANDS = [
    "abs(l.k - r.k) <= 2", "l.k BETWEEN r.k - 1 AND r.k + 2", "l.k > r.k - 1.5 AND l.k <= r.k",
    "l.g = r.g AND abs(l.k - r.k) <= 1", "l.k - r.k BETWEEN 0 AND 1", "2 * l.k >= r.k AND 2 * l.k <= r.k + 3",
]  # fmt: skip
INTERVALS = [
    "l.k BETWEEN r.k - INTERVAL 1 DAY AND r.k", "l.k > r.k AND l.k <= r.k + INTERVAL 1 MONTH",
    "l.g = r.g AND l.k BETWEEN r.k - INTERVAL 36 HOURS AND r.k + INTERVAL 2 DAYS",
]  # fmt: skip
SETTINGS = {
    "spark.sql.ansi.enabled": ["true", "true", "false"],
    "spark.sql.adaptive.enabled": ["true", "false"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "10485760"],
    "spark.sql.session.timeZone": ["UTC", "America/New_York", "Asia/Kolkata"],
}


@pytest.fixture(autouse=True)
def restored(spark, interpreted):
    before = {k: spark.conf.get(k, None) for k in SETTINGS}
    yield
    for k, v in before.items():
        spark.conf.unset(k) if v is None else spark.conf.set(k, v)


def keys(rng, kind):
    """SQL of a key: skewed or not, around zero, NULLs and odd numbers among them."""
    salt = rng.randrange(1000)
    value = f"pmod(hash(id, {salt}), {rng.choice([3, 9, 40])}) - 2"
    if rng.random() < 0.5:
        value = f"IF(pmod(hash(id, {salt + 1}), 10) < 6, 1, {value})"
    if rng.random() < 0.5:
        value = f"IF(pmod(hash(id, {salt + 2}), 8) = 0, NULL, {value})"
    if kind == "string":
        return f"concat('s', {value})"
    if kind == "date":
        return f"date_add(DATE'2024-03-08', {value})"
    if kind in TIMES:
        return f"{kind}'2024-03-09 00:00:00' + make_dt_interval(0, 3 * ({value}))"
    if kind in ("double", "float"):
        odd = rng.choice(["NaN", "Infinity", "-Infinity", "-0.0"])
        return f"IF(pmod(hash(id, {salt + 3}), 11) = 0, cast('{odd}' AS {kind}), cast(({value}) / 4D AS {kind}))"
    return f"cast(({value}) / {'4D' if 'decimal' in kind else '1'} AS {kind})"


def frame(spark, rng, kind, rows):
    df = spark.range(0, rows, 1, rng.choice([1, 2, 3])).selectExpr(
        f"{keys(rng, kind)} AS k", "cast(IF(id % 5 = 0, NULL, id % 4) AS int) AS g", "cast(id % 17 AS int) AS n"
    )
    return rng.choice([df, df, df, df.repartition(3), df.orderBy("n"), df.union(df)])


def drawn(rng):
    family = rng.choice([NUMBERS, NUMBERS, NUMBERS, TIMES, ["string"]])
    kinds = [rng.choice(family)] * 2 if rng.random() < 0.5 else [rng.choice(family) for _ in range(2)]
    conditions = EQUAL + THETA + {"int": BANDS * 2, "date": INTERVALS * 3}.get(family[0], [])
    return kinds, rng.choice(conditions), rng.choice(HOWS), rng.choice(SCHEMES), rng.choice([1, 2, 3, 4, 5, 6, 7, 13])


@pytest.mark.parametrize("batch", range(3))
def test_random_joins(spark, seed, batch):
    rng = random.Random(100 * seed + batch)
    answered = 0
    for _ in range(6):
        kinds, on, how, scheme, workers = drawn(rng)
        for name, values in SETTINGS.items():
            spark.conf.set(name, rng.choice(values))
        sizes = rng.choice([(60, 40), (30, 60), (150, 20), (12, 120), (0, 10), (10, 0), (40, 40)])
        left, right = (frame(spark, rng, kind, rows) for kind, rows in zip(kinds, sizes, strict=True))
        try:
            got = ek.join(left, right, on, how, scheme=scheme, workers=workers)
        except EvenkeelError:
            continue  # a scheme that cannot run the condition, or types that do not compare
        expected = left.alias("l").join(right.alias("r"), F.expr(on), how)
        try:
            assert_same_rows(got, expected)
        except AssertionError as error:
            settings = {k: spark.conf.get(k) for k in SETTINGS}
            raise AssertionError(f"{on} {how} {scheme} {workers} {kinds} {sizes} {settings}\n{error}") from None
        answered += 1
    assert answered >= 2
