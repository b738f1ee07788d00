"""Implementation against implementation: hashes and routes computed in NumPy are those that Spark executes."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel import dealing, hashing
from evenkeel.local import local_named
from evenkeel.schemes import SCHEMES, Batch
from evenkeel.spark import exchange
from evenkeel.spark.session import settings
from evenkeel.types import SIDES

WORKERS = 7
ALPHABET = [*"abcXYZ 019.,'éßΩ中🚖", "\u0000", "e\u0301"]


def values_of_every_type(rows, seed):
    rng = np.random.default_rng(seed)

    def ints(bits):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        drawn = rng.integers(low, high, rows, dtype=np.int64, endpoint=True)
        drawn[:5] = [low, high, 0, -1, 1]
        return drawn

    def floats(kind, bits):
        drawn = rng.integers(0, 2**bits, rows, dtype=np.uint64).astype(f"u{bits // 8}").view(kind)  # any bit pattern
        drawn[:8] = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, np.finfo(kind).tiny, np.finfo(kind).max]
        return drawn

    def decimals(digits, scale):
        edges = [0, 127, 128, -128, -129, 255, 2**63 - 1, -(2**63), 2**63, 10**digits - 1, 1 - 10**digits]
        drawn = [int(rng.integers(1, 10)) * 10 ** int(n) + int(rng.integers(0, 2**63)) % 10 ** int(n)
                 for n in rng.integers(0, digits, rows)]  # fmt: skip
        signed = [u * int(s) for u, s in zip(drawn, rng.choice([-1, 1], rows), strict=True)]
        kept = [u for u in edges if abs(u) < 10**digits]
        with localcontext(prec=60):
            values = [Decimal(u).scaleb(-scale) for u in kept + signed[len(kept) :]]
        return pa.array(values, pa.decimal128(digits, scale))

    lengths = np.concatenate([np.arange(110), rng.integers(0, 110, rows - 110)])
    columns = {
        "boolean": pa.array(rng.random(rows) < 0.5),
        "byte": pa.array(ints(8), pa.int8()),
        "short": pa.array(ints(16), pa.int16()),
        "int": pa.array(ints(32), pa.int32()),
        "long": pa.array(ints(64), pa.int64()),
        "float": pa.array(floats(np.float32, 32)),
        "double": pa.array(floats(np.float64, 64)),
        "date": pa.array(rng.integers(-500_000, 100_000, rows).astype(np.int32), pa.int32()).cast(pa.date32()),
        "timestamp": pa.array(rng.integers(-(10**16), 10**16, rows), pa.timestamp("us", tz="UTC")),
        "timestamp_ntz": pa.array(rng.integers(-(10**16), 10**16, rows), pa.timestamp("us")),
        "decimal": decimals(18, 4),
        "big_decimal": decimals(38, 10),
        "text": pa.array(["".join(rng.choice(ALPHABET, n)) for n in lengths]),
        "binary": pa.array([rng.bytes(n) for n in rng.permutation(lengths)], pa.binary()),
    }
    late = np.arange(rows) >= 110  # the first values are edges and every length of text
    for name, column in columns.items():
        some = pa.array(late & (rng.random(rows) < 0.1))
        columns[name] = pc.if_else(some, pa.scalar(None, column.type), column)
    return pa.table(columns)


def test_hashes_of_every_type_and_of_composite_keys(spark, seed):
    table = values_of_every_type(4000, seed)
    df = spark.createDataFrame(table).withColumn("timestamp_ntz", F.col("timestamp_ntz").cast("timestamp_ntz"))
    names = table.column_names
    keys = [[n] for n in names] + [names, names[::-1], ["text", "long"], ["big_decimal", "binary", "double"]]
    got = df.select(*(F.xxhash64(*key).alias(str(i)) for i, key in enumerate(keys))).toArrow()
    for i, key in enumerate(keys):
        assert all(hashing.supports(table[c].type) for c in key)
        mine, theirs = hashing.xxhash64([table[c] for c in key]), got[str(i)].to_numpy()
        wrong = np.flatnonzero(mine != theirs)
        assert not len(wrong), (key, len(wrong), [table[c][int(wrong[0])].as_py() for c in key])
        assert len(np.unique(theirs)) > 1


def skewed(spark, rows, seed, stable):
    """A third of the rows share key 0, nearly another key 1; a tenth of all have none."""
    rng = np.random.default_rng(seed)
    keys = rng.choice([0, 1, 2], rows, p=[0.34, 0.3, 0.36])
    keys = np.where(keys == 2, rng.integers(2, 200, rows), keys)
    table = pa.table({"k": pa.array(keys, mask=rng.random(rows) < 0.1), "id": np.arange(rows)})
    df = spark.createDataFrame(table)
    return df if stable else df.repartition(3)


@pytest.mark.parametrize("stable", [True, False], ids=["stable order", "unstable order"])
@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("scheme", [s.name for s in SCHEMES])
def test_routes_row_by_row(spark, scheme, how, stable, seed):
    frames = skewed(spark, 3000, seed, stable), skewed(spark, 2500, seed + 1, stable)
    plan = ek.plan(*frames, "k", how, scheme=scheme, workers=WORKERS)
    copied = check_routes(plan, stable)
    assert copied == {"hash": 0, "broadcast": 1, "heavy_light": 2}.get(scheme, copied)


@pytest.mark.parametrize("stable", [True, False], ids=["stable order", "unstable order"])
@pytest.mark.parametrize("on", ["abs(l.k - r.k) <= 2", "l.id % 5 = r.id % 5 AND l.k BETWEEN r.k - 3 AND r.k"])
@pytest.mark.parametrize("scheme", ["one_bucket", "m_bucket", "equi_weight"])
def test_ranges_route_row_by_row(spark, scheme, on, stable, seed):
    """With two keys so hot that they are cut apart, and rows without a key."""
    frames = skewed(spark, 3000, seed, stable), skewed(spark, 2500, seed + 1, stable)
    check_routes(ek.plan(*frames, on, "full", scheme=scheme, workers=WORKERS), stable)


@pytest.mark.parametrize("stable", [True, False], ids=["stable order", "unstable order"])
def test_rows_of_narrow_stripes_count_as_copied(spark, stable, seed):
    """One of two stripes is a single region: a left row is copied or not as its number has it."""
    frames = skewed(spark, 300, seed, stable), skewed(spark, 200, seed + 1, stable)
    plan = ek.plan(*frames, "l.k < r.k", "full", scheme="one_bucket", workers=3)
    assert plan.layout.stripes.tolist() == [2, 1]
    check_routes(plan, stable)


def check_routes(plan, stable):
    assert plan.tree.facts.stable_order == {side: stable for side in SIDES}
    join, layout = plan._request, plan.layout
    copied = 0
    for side in SIDES:
        run = layout.route_expr(side).run
        df, number = exchange.with_routing(join, side, stable, keep_nulls=True, run=run)
        spans = join.condition.spans
        position = F.expr(spans[0].sql(side) if spans else "0D").alias("x")
        rows = df.select(f"_{side[0]}1", "_key", F.expr(number).alias("row"), position).toArrow()
        ids, key, x = rows[0].to_numpy(), rows["_key"].combine_chunks(), rows["x"].combine_chunks()
        valid = np.asarray(pc.and_(key.is_valid(), x.is_valid()))
        batch = Batch(key.fill_null(0).to_numpy(), valid, rows["row"].to_numpy(), x.fill_null(0.0).to_numpy())
        expected = layout.route(side, batch)
        routed = exchange.route(join, side, layout, stable, with_copies=True)
        region = F.expr(exchange.region_of(routed, layout.workers)).alias("region")
        got = routed.df.select(f"_{side[0]}1", region, routed.copies).toArrow()
        pairs = sorted(zip(got[0].to_pylist(), got["region"].to_pylist(), strict=True))
        assert pairs == sorted(zip(ids[expected.row].tolist(), expected.region.tolist(), strict=True))
        times, counted = np.bincount(got[0].to_numpy()), got[routed.copies].to_numpy()
        assert (counted > 1)[times[got[0].to_numpy()] > 1].all()
        if layout.route_expr(side).table is not None:
            assert (counted == times[got[0].to_numpy()]).all()
        if layout.replicates(side):
            found = exchange.copied_rows(join, side, layout, local_named("merge_on_hash"), stable)
            reconciled = found.select(f"_{side[0]}1").toArrow()[0].to_pylist()
            assert set(reconciled) == set(got[0].to_numpy()[counted > 1].tolist())
            assert len(reconciled) == len(set(reconciled))
        assert len(times) == len(ids) and (times.max() > 1) == layout.replicates(side)
        copied += times.max() > 1
    return copied


@pytest.mark.parametrize("scheme", [s.name for s in SCHEMES])
def test_each_region_is_in_one_partition(spark, scheme, seed):
    workers = 8
    plan = ek.plan(
        skewed(spark, 3000, seed, True), skewed(spark, 2500, seed + 1, False), "k", "full",
        scheme=scheme, workers=workers,
    )  # fmt: skip
    for side, stable in zip(SIDES, (True, False), strict=True):
        routed = exchange.route(plan._request, side, plan.layout, stable)
        for tasks in (workers, 4, 2, 1):
            sent = exchange.exchange(routed, plan.layout, plan.tree.local, plan._request, tasks)
            region = F.expr(exchange.region_of(sent, workers)).alias("region")
            got = sent.df.select(F.spark_partition_id().alias("partition"), region).toArrow()
            assert (got["partition"].to_numpy() == got["region"].to_numpy() % tasks).all()
            assert set(got["region"].to_pylist()) == set(range(workers))


@pytest.mark.parametrize("stable", [True, False], ids=["stable order", "unstable order"])
def test_null_keys_are_spread(spark, stable, seed):
    nulls = pa.table({"k": pa.array([None] * 5000, pa.int64()), "id": np.arange(5000)})
    left = spark.createDataFrame(nulls) if stable else spark.createDataFrame(nulls).repartition(3)
    plan = ek.plan(left, skewed(spark, 500, seed, True), "k", "full", scheme="heavy_light", workers=8)
    routed = exchange.route(plan._request, "left", plan.layout, stable)
    numbers = routed.df.select(routed.region).toArrow()[routed.region].to_numpy()
    counts = np.bincount(numbers % 8, minlength=8)
    assert counts.sum() == 5000 and counts.max() <= 2 * counts.mean()
    assert len(np.unique(numbers)) > 4990  # or merging would try NULLs of both sides pair by pair


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("workers", [1, 2, 7, 64, 1000])
def test_the_number_of_a_region_fits_and_tells_keys_apart(spark, workers, ansi, seed):
    left, right = skewed(spark, 2000, seed, True), spark.range(2000).selectExpr("id AS k", "id")
    with settings(spark, {"spark.sql.ansi.enabled": ansi}):
        plan = ek.plan(left, right, "k", scheme="heavy_light", workers=workers)
        routed = exchange.route(plan._request, "right", plan.layout, True, keep_nulls=False)
        rows = routed.df.toArrow()
    assert not routed.df.schema[routed.region].nullable  # or Spark would compute it twice, to test it first
    numbers = rows[routed.region].to_numpy()
    assert numbers.min() >= 0
    keys = len(np.unique(rows.column(0).to_numpy()))
    assert len(np.unique(numbers // workers)) > 0.98 * keys


def test_rows_are_numbered_and_dealt_as_in_numpy(spark):
    df, _ = exchange.numbered(spark.range(0, 5000, 1, 3), ["id"], stable=True)
    for run in (0, 3, 6):
        number = dealing.number_sql("_row", run)
        rows = df.selectExpr("_row", f"{number} AS n", f"{dealing.slot_sql(number, 37)} AS s").toArrow()
        row = rows["_row"].to_numpy()
        want = np.array([dealing.number(r & (2**33 - 1), int(r) >> 33, run) for r in row])
        assert np.array_equal(rows["n"].to_numpy(), want)
        assert np.array_equal(rows["s"].to_numpy(), dealing.slot(want, 37))


@pytest.mark.parametrize("keys", [10, 12, 20, 55])
def test_hot_keys_in_turn_are_spread(spark, keys):
    """Every row of a key stands at the same distance from the next one, as counters and round-robin leave them."""
    left = spark.range(0, 120_000, 1, 4).selectExpr(f"id % {keys} AS k", "id")
    right = spark.range(600).selectExpr(f"id % {keys} AS k", "id AS v")
    plan = ek.plan(left, right, "k", workers=64, scheme="heavy_light")
    assert plan.measure(run=False).skew_degree < plan.predicted.skew_degree + 0.1


def test_missing_keys_in_turn_are_spread(spark):
    left = spark.range(0, 64_000, 1, 4).selectExpr("IF(id % 8 = 3, NULL, id) AS k", "id")
    plan = ek.plan(left, spark.range(10).toDF("k"), "k", "left", workers=8, scheme="heavy_light")
    assert plan.measure().skew_degree < 1.1


@pytest.mark.parametrize("shuffled", [False, True], ids=["as read", "repartitioned"])
def test_identical_rows_are_spread(spark, shuffled):
    left, right = (spark.createDataFrame(pa.table({"k": np.zeros(n, dtype=np.int64)})) for n in (100_000, 3000))
    plan = ek.plan(left.repartition(8) if shuffled else left, right, "k", scheme="heavy_light", workers=8)
    load = plan.measure(run=False)
    assert load.rows_out.sum() == 100_000 * 3000
    assert load.skew_degree < 1.2
