"""Conformance, against an oracle (DuckDB): every scheme gives every join type on every kind of key."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle import duck_join

import evenkeel as ek
from evenkeel.testing import assert_same_rows

HOWS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
SCHEMES = ["auto", "hash", "broadcast", "heavy_light"]
WORKERS = 5
NAN = float("nan")
UTC = dt.UTC

KEYS: dict[str, tuple[pa.DataType, list]] = {
    "byte": (pa.int8(), [-128, 0, 127]),
    "short": (pa.int16(), [-32768, 0, 9]),
    "int": (pa.int32(), [-(2**31), 0, 5]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "float": (pa.float32(), [0.0, -0.0, NAN, 1.5]),
    "double": (pa.float64(), [0.0, -0.0, NAN, float("inf"), 1e300]),
    "string": (pa.string(), ["", "hot", "ünïcödé", "x" * 70]),
    "binary": (pa.binary(), [b"", b"\x00\xff", b"hot"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("99999999.99")]),
    "big_decimal": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("0"), Decimal("12345678901234567890.5")]),
    "date": (pa.date32(), [dt.date(1600, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 11, 15)]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2026, 11, 15, 1, 2, 3, 456789, tzinfo=UTC)],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1969, 7, 20), dt.datetime(2026, 11, 15, 1, 2, 3, 4)]),
    "boolean": (pa.bool_(), [True, False]),
}


def table(kind, values, rows, seed, prefix):
    """Half of the rows share the first key, some are NULL, the rest are drawn from the others."""
    rng = np.random.default_rng(seed)
    picks = rng.choice(len(values), rows)
    picks[rng.random(rows) < 0.5] = 0
    nulls = rng.random(rows) < 0.1
    keys = [None if n else values[p] for p, n in zip(picks, nulls, strict=True)]
    return pa.table({"k": pa.array(keys, kind), f"{prefix}n": pa.array(range(rows), pa.int32())})


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KEYS)
def test_key_types(spark, kind, how, seed, request):
    """With generated code for every type and for every join type, but not for all pairs of them."""
    if how not in ("inner", "full") and kind not in ("long", "double", "string"):
        request.getfixturevalue("interpreted")
    arrow, values = KEYS[kind]
    left, right = table(arrow, values, 37, seed, "l"), table(arrow, values, 29, seed + 1, "r")
    expected = duck_join(left, right, "l.k = r.k", how)
    for scheme in ("heavy_light", "broadcast") if how == "full" else ("heavy_light",):
        frames = [spark.createDataFrame(t) for t in (left, right)]
        if kind == "timestamp_ntz":  # Arrow's naive timestamps become Spark's zoned ones unless told otherwise
            frames = [f.withColumn("k", f.k.cast("timestamp_ntz")) for f in frames]
        assert_same_rows(ek.join(*frames, "l.k = r.k", how, scheme=scheme, workers=WORKERS), expected)


DISTRIBUTIONS = {
    "one key": ([0] * 40, [0] * 30),
    "hot on the left": ([0] * 40 + list(range(20)), list(range(30))),
    "hot on the right": (list(range(30)), [7] * 40 + list(range(25))),
    "hot on both": ([0] * 30 + [1] * 20 + list(range(20)), [0] * 25 + [1] * 10 + list(range(15, 40))),
    "hot but apart": ([0] * 40, [1] * 40),
    "unique": (list(range(50)), list(range(25, 75))),
    "left empty": ([], [1, 2, 2]),
    "right empty": ([1, 2, 2], []),
    "both empty": ([], []),
    "all NULL": ([None] * 9, [None] * 7),
    "mostly NULL": ([None] * 30 + [1, 2], [None] * 20 + [2, 3, 3]),
}


def keyed(keys, prefix):
    return pa.table({"k": pa.array(keys, pa.int64()), f"{prefix}n": pa.array(np.arange(len(keys)) % 7, pa.int32())})


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("shape", DISTRIBUTIONS)
def test_distributions(spark, interpreted, shape, how):
    """With duplicates (only seven different payloads), and with a residual condition where copies abound."""
    left, right = (keyed(k, p) for k, p in zip(DISTRIBUTIONS[shape], "lr", strict=True))
    frames = [spark.createDataFrame(t) for t in (left, right)]
    hot = "hot" in shape or shape == "one key"
    schemes = {"l.k = r.k": SCHEMES if hot else ("auto", "heavy_light")}
    if hot:
        schemes["l.k = r.k AND l.ln < r.rn"] = ("broadcast", "heavy_light")
    for on, names in schemes.items():
        expected = duck_join(left, right, on, how)
        for scheme in names:
            assert_same_rows(ek.join(*frames, on, how, scheme=scheme, workers=WORKERS), expected)


@pytest.mark.parametrize("how", HOWS)
def test_null_safe_and_composite_keys(spark, interpreted, how, seed):
    rng = np.random.default_rng(seed)

    def make(rows, prefix):
        a = [None if v == 3 else int(v) for v in rng.choice([0, 0, 0, 1, 3, 3], rows)]
        b = [None if v == "n" else str(v) for v in rng.choice(["x", "x", "y", "n"], rows)]
        return pa.table(
            {"a": pa.array(a, pa.int64()), "b": pa.array(b), f"{prefix}n": pa.array(range(rows), pa.int32())}
        )

    left, right = make(40, "l"), make(30, "r")
    same = "IS NOT DISTINCT FROM"
    for on, duck_on in {
        "l.a <=> r.a": f"l.a {same} r.a",
        "l.a = r.a AND l.b = r.b": "l.a = r.a AND l.b = r.b",
        "l.a <=> r.a AND l.b = r.b": f"l.a {same} r.a AND l.b = r.b",
        "l.a <=> r.a AND l.b <=> r.b AND l.ln > r.rn": f"l.a {same} r.a AND l.b {same} r.b AND l.ln > r.rn",
    }.items():
        expected = duck_join(left, right, duck_on, how)
        for scheme in ("heavy_light", "broadcast"):
            got = ek.join(
                spark.createDataFrame(left), spark.createDataFrame(right), on, how, scheme=scheme, workers=WORKERS
            )
            assert_same_rows(got, expected)


@pytest.mark.parametrize("workers", [1, 2, 64])
@pytest.mark.parametrize("how", HOWS)
def test_any_number_of_workers(spark, how, workers):
    left, right = (keyed(k, p) for k, p in zip(DISTRIBUTIONS["hot on both"], "lr", strict=True))
    got = ek.join(
        spark.createDataFrame(left), spark.createDataFrame(right), "l.k = r.k", how,
        scheme="heavy_light", workers=workers,
    )  # fmt: skip
    assert_same_rows(got, duck_join(left, right, "l.k = r.k", how))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_cross(spark, scheme):
    left, right = keyed([1, None, 2], "l"), keyed([None, 5], "r")
    got = ek.join(
        spark.createDataFrame(left), spark.createDataFrame(right), None, "cross", scheme=scheme, workers=WORKERS
    )
    assert_same_rows(got, duck_join(left, right, "", "cross"))


@pytest.mark.parametrize("how", HOWS)
def test_without_equality(spark, how):
    left, right = keyed([1, 5, None, 9], "l"), keyed([4, 5, None], "r")
    frames = spark.createDataFrame(left), spark.createDataFrame(right)
    expected = duck_join(left, right, "l.k < r.k", how)
    assert_same_rows(ek.join(*frames, "l.k < r.k", how, workers=WORKERS), expected)
    assert_same_rows(ek.join(*frames, "l.k < r.k", how, workers=WORKERS, scheme="broadcast"), expected)
