"""Against Spark's own batch join: stream joins on Structured Streaming give what a batch join of all rows gives."""

from __future__ import annotations

import datetime as dt
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.testing import assert_same_rows

START = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
NOW = {"availableNow": True}


def table(rng, rows, batch, prefix):
    """Skewed keys with NULLs, two key types, times that move on by a minute a batch."""
    keys = rng.choice([0, 0, 0, 0, 1, 2, 3, 4, 5, 6], rows)
    null = rng.random(rows) < 0.1
    seconds = rng.integers(60 * batch, 60 * batch + 60, rows)
    return pa.table({
        "k": pa.array([None if n else int(k) for k, n in zip(keys, null, strict=True)], pa.int64()),
        "name": pa.array([f"n{k}" for k in rng.integers(0, 9, rows)]),
        "x": pa.array(rng.integers(0, 50, rows), pa.int32()),
        "ts": pa.array([START + dt.timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", tz="UTC")),
        f"{prefix} id": pa.array(np.arange(rows) + 1000 * batch, pa.int64()),
    })  # fmt: skip


@pytest.fixture(scope="module")
def feed(spark, tmp_path_factory):
    """Two folders with a file a batch, as streams and as tables."""
    root = tmp_path_factory.mktemp("feed")
    rng = np.random.default_rng(7)
    for prefix, rows in (("l", 60), ("r", 50)):
        (root / prefix).mkdir()
        for batch in range(4):
            path = root / prefix / f"{batch}.parquet"
            pq.write_table(table(rng, rows, batch, prefix), path)
            os.utime(path, (1e9 + batch, 1e9 + batch))
    tables = [spark.read.parquet(str(root / p)) for p in "lr"]

    def streams():
        return [
            spark.readStream.schema(t.schema).option("maxFilesPerTrigger", 1).parquet(str(root / p))
            for t, p in zip(tables, "lr", strict=True)
        ]

    return streams, tables


def run(join, tmp_path, sink=None):
    sink = sink or ek.sinks.memory("results")
    query = join.start(sink, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW)
    query.awaitTermination()
    return query, sink


INNER = {
    "hash": ("k", None),
    "contrand(d=2, e=1)": ("l.name = r.name AND l.x < r.x", None),
    "random": ("l.ts BETWEEN r.ts - INTERVAL 20 SECONDS AND r.ts AND levenshtein(l.name, r.name) < 1", None),
    "one_bucket": ("l.k <=> r.k AND abs(l.x - r.x) <= 3", "90 seconds"),
}


@pytest.mark.parametrize("strategy", INNER)
def test_inner(feed, tmp_path, strategy):
    (left, right), tables = feed[0](), feed[1]
    on, within = INNER[strategy]
    join = ek.stream_join(
        left, right, on, within=within, time="ts", strategy=strategy, units=5, state=str(tmp_path / "state")
    )
    query, sink = run(join, tmp_path)
    window = f" AND abs(unix_micros(l.ts) - unix_micros(r.ts)) <= {90_000_000}" if within else ""
    condition = "l.k = r.k" if on == "k" else on
    expected = tables[0].alias("l").join(tables[1].alias("r"), F.expr(condition + window))
    if on == "k":
        expected = expected.select("l.k", *(f"l.{c}" if " " not in c else f"l.`{c}`" for c in tables[0].columns[1:]),
                                   *(f"r.`{c}`" for c in tables[1].columns[1:]))  # fmt: skip
    assert sink.table.num_rows > 100
    assert_same_rows(sink.table, expected.toArrow())
    status = query.status()
    assert status["epoch"] == 3 and status["totals"]["rows"] == {"left": 240, "right": 200}
    assert sum(u["received"]["left"] for u in query.loads()) >= 60
    state = DeltaTable(str(tmp_path / "state")).to_pyarrow_table()
    assert state.num_rows == status["state_rows"] and {"side", "unit"} <= set(state.column_names)


SLIDING = "45 seconds"
OUTER = {
    "left": ("hash", "l.k = r.k AND l.x < r.x - 40 AND l.x <> 3 AND r.x % 5 > 0", SLIDING),
    "full": ("one_bucket", "l.name = r.name AND l.k <=> r.k AND l.x > 9 AND r.x > 9", ek.tumbling("20 seconds")),
    "right": ("random", "l.x BETWEEN r.x AND r.x + 9 AND abs(l.x - r.x) < 2 AND l.name < r.name AND r.x > 9", SLIDING),
    "left_anti": ("contrand", "l.k = r.k AND l.x % 2 = 0 AND r.x > 9", "30 seconds"),
}


@pytest.mark.parametrize("how", OUTER)
def test_outer(feed, tmp_path, how):
    """Rows whose window the watermark has passed are all there, matched or not; no others are unmatched."""
    (left, right), tables = feed[0](), feed[1]
    strategy, on, within = OUTER[how]
    join = ek.stream_join(
        left, right, on, how, within=within, time="ts", strategy=strategy, units=4, state=str(tmp_path / "state")
    )
    query, sink = run(join, tmp_path)
    near = (
        "abs(unix_micros(l.ts) - unix_micros(r.ts)) <= 45000000" if how in ("left", "right")
        else "floor(unix_micros(l.ts) / 2e7) = floor(unix_micros(r.ts) / 2e7)" if how == "full"
        else "abs(unix_micros(l.ts) - unix_micros(r.ts)) <= 30000000"
    )  # fmt: skip
    mark = query.driver.state.snapshot.progress["watermark_before"]
    due = query.driver.spec.window.useless_before(mark)
    condition = F.expr(f"{on} AND {near}")
    got = tables[0].alias("l").join(tables[1].alias("r"), condition, how)
    if how == "left_anti":
        got = got.filter(F.expr(f"unix_micros(ts) < {due}"))
        got = got.select("k", *(f"`{c}`" for c in tables[0].columns[1:]))
    else:
        late = f"unix_micros(coalesce(l.ts, r.ts)) < {due}"
        got = got.filter(F.expr(f"(l.x IS NOT NULL AND r.x IS NOT NULL) OR {late}"))
    expected = got.toArrow()
    assert_same_rows(sink.table, expected)
    assert query.status()["totals"]["emitted"] > 10


def test_restart_and_refusals(feed, tmp_path):
    (left, right), tables = feed[0](), feed[1]
    paths = {"state": str(tmp_path / "state")}
    checkpoint = str(tmp_path / "checkpoint")
    sink = ek.sinks.delta(str(tmp_path / "out"))
    crashing = ek.stream_join(left, right, "k", units=2, **paths)

    def crash(step, epoch):
        if (step, epoch) == ("sunk", 2):
            raise RuntimeError("ABORT")

    crashing.on_step = crash
    with pytest.raises(StreamingQueryException, match="ABORT"):
        crashing.start(sink, checkpoint=checkpoint, trigger=NOW).awaitTermination()

    for options, what in (
        ({"on": "name"}, "condition"),
        ({"units": 3}, "number of units"),
        ({"how": "left", "within": "1 hour", "time": "ts"}, "join type"),
        ({"left": left.withColumn("new", F.lit(1))}, "set of columns"),
        ({"left": left.withColumn("x", F.col("x").cast("long"))}, "schema"),
        ({"strategy": "contrand"}, "strategy"),
        ({"within": "1 hour", "time": "ts"}, "window"),
    ):
        asked = {"left": left, "right": right, "on": "k", "units": 2, **paths} | options
        with pytest.raises(ek.EvenkeelError, match=f"another {what}"):
            ek.stream_join(**asked).start(sink, checkpoint=checkpoint)
    again = ek.stream_join(left, right, "k", units=2, **paths)
    with pytest.raises(ek.EvenkeelError, match="another checkpoint"):
        again.start(sink, checkpoint=str(tmp_path / "elsewhere"))
    with pytest.raises(ek.EvenkeelError, match="another checkpoint"):
        ek.stream_join(left, right, "k", units=2, state=str(tmp_path / "fresh")).start(sink, checkpoint=checkpoint)

    query = again.start(sink, checkpoint=checkpoint, trigger=NOW)
    query.awaitTermination()
    expected = tables[0].join(tables[1].drop("name", "x", "ts"), "k").select("k", "l id", "r id").toArrow()
    got = DeltaTable(str(tmp_path / "out")).to_pyarrow_table(columns=["k", "l id", "r id"])
    assert_same_rows(got, expected)
    assert query.status()["totals"]["rows"] == {"left": 240, "right": 200}


def test_a_state_that_cannot_be_written(feed, tmp_path):
    left, right = feed[0]()
    (tmp_path / "file").write_text("")
    for state in ("/proc/evenkeel/state", str(tmp_path / "file" / "state")):
        with pytest.raises(ek.EvenkeelError, match="cannot be written"):
            ek.stream_join(left, right, "k", state=state).start(print, checkpoint=str(tmp_path / "c"))


def test_requests_that_make_no_sense(spark, feed, tmp_path):
    (left, right), (table, _) = feed[0](), feed[1]
    state = str(tmp_path / "state")
    for arguments, what in (
        ({"left": table}, "not a stream"),
        ({"how": "left"}, "wait for a partner forever"),
        ({"within": "soon", "time": "ts"}, "no length of time"),
        ({"within": "1 hour"}, "no time column"),
        ({"within": "1 hour", "time": "x"}, "no point in time"),
        ({"within": "1 hour", "time": "when"}, "no column 'when'"),
        ({"units": 0}, "units=0"),
        ({"units": 1, "strategy": "contrand"}, "at least 2"),
        ({"strategy": "hsah"}, "did you mean 'hash'"),
        ({"strategy": "contrand(d=x)"}, "cannot be read"),
        ({"strategy": "hash", "on": "l.x < r.x"}, "no equality"),
        ({"on": "l.k = r.k AND l.x + r.x > 3", "how": "left", "within": "1 hour", "time": "ts"}, "after the join"),
        ({"state": "s3://bucket/state"}, "no path of a file system"),
        ({"left": left.withColumn("i", F.expr("INTERVAL 1 DAY"))}, "cannot keep"),
    ):
        with pytest.raises(ek.EvenkeelError, match=what) as error:
            ek.stream_join(**({"left": left, "right": right, "on": "k", "state": state} | arguments))
        assert "Hint:" in str(error.value)
    assert not os.path.exists(state)


@pytest.mark.parametrize(
    ("kinds", "null_safe"),
    [(("tinyint", "bigint"), False), (("int", "int"), True), (("date", "date"), False), (("smallint", "int"), False)],
)
def test_whole_keys(spark, tmp_path, kinds, null_safe):
    """Of different widths, dates, and NULLs that match each other."""
    sides = []
    for name, kind in zip("ab", kinds, strict=True):
        key = "CASE WHEN id % 9 = 0 THEN NULL ELSE id % 100 - 50 END"
        key = f"date_add(DATE'1970-01-01', CAST({key} AS int))" if kind == "date" else f"CAST({key} AS {kind})"
        folder = str(tmp_path / name)
        spark.range(200).selectExpr(f"{key} AS k", f"id AS {name}").write.parquet(folder)
        sides.append(spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder))
    on = "l.k <=> r.k" if null_safe else "k"
    join = ek.stream_join(*sides, on=on, units=3, strategy="hash", state=str(tmp_path / "state"))
    run(join, tmp_path, ek.sinks.parquet(str(tmp_path / "out")))
    got = spark.read.parquet(str(tmp_path / "out"))
    left, right = (spark.read.parquet(str(tmp_path / name)) for name in "ab")
    same = left["k"].eqNullSafe(right["k"]) if null_safe else left["k"] == right["k"]
    assert_same_rows(got.select("a", "b"), left.join(right, same).select("a", "b"))


@pytest.mark.parametrize("on", ["l.x BETWEEN r.x AND r.x + 9", "levenshtein(l.name, r.name) < 1"])
def test_a_tumbling_window_without_a_key(feed, tmp_path, on):
    """The window is then all that a row is hashed by."""
    (left, right), tables = feed[0](), feed[1]
    within = ek.tumbling("20 seconds")
    join = ek.stream_join(left, right, on, within=within, time="ts", units=3, state=str(tmp_path / "state"))
    _, sink = run(join, tmp_path)
    same = f"{on} AND floor(unix_micros(l.ts) / 2e7) = floor(unix_micros(r.ts) / 2e7)"
    assert_same_rows(sink.table, tables[0].alias("l").join(tables[1].alias("r"), F.expr(same)).toArrow())


def test_sinks(spark, tmp_path, capsys):
    rows = spark.range(3)
    for name in ("delta", "parquet"):
        sink = getattr(ek.sinks, name)(str(tmp_path / name))
        for batch in (0, 0, 1, 1, 0):  # replayed batches count once
            sink(rows, batch)
    assert DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().num_rows == 6
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 6
    memory = ek.sinks.memory("seen")
    for batch in (0, 1, 1):
        memory(rows, batch)
    assert spark.table("seen").count() == memory.table.num_rows == 6
    ek.sinks.console()(rows, 4)
    assert "batch 4" in capsys.readouterr().out


def test_kafka_writer(spark, monkeypatch):
    """What Spark's Kafka writer is given; there is no broker here to send it to."""
    from pyspark.sql.readwriter import DataFrameWriter

    given = {}
    monkeypatch.setattr(DataFrameWriter, "format", lambda self, name: given.update(format=name) or self)
    monkeypatch.setattr(DataFrameWriter, "options", lambda self, **options: given.update(options) or self)
    monkeypatch.setattr(DataFrameWriter, "save", lambda self: given.update(rows=self._df.collect()))
    sink = ek.sinks.kafka("matches", servers="a:9092,b:9092", **{"kafka.acks": "all"})
    sink(spark.sql("SELECT 1 AS k, 'x' AS v, CAST(NULL AS int) AS w"), 3)
    assert [r.value for r in given.pop("rows")] == ['{"k":1,"v":"x"}']
    assert given == {
        "format": "kafka", "topic": "matches", "kafka.bootstrap.servers": "a:9092,b:9092", "kafka.acks": "all"
    }  # fmt: skip


def test_auto(spark, feed, tmp_path):
    """High selectivity is spread at random, all else begins as hashing or at random and may change later."""
    left, right = (df.withColumn("b", F.col("x") > 3) for df in feed[0]())
    for on, chosen in (
        ("k", "hash"), ("l.name = r.name AND l.b = r.b", "hash"), ("b", "random"), ("abs(l.x - r.x) < 2", "random"),
        ("levenshtein(l.name, r.name) < 2", "random"),
    ):  # fmt: skip
        strategy = ek.stream_join(left, right, on, state=str(tmp_path / "s")).strategy
        assert strategy.start(("left", "right"), 4, {}).strategy == chosen


def test_units_without_rows(spark, tmp_path):
    """Fewer rows than units, an input that is silent at first, and batches without a match."""
    schema = "k int, v string"
    for side, batches in (("l", [[(1, "a")], [(1, "b")]]), ("r", [[(2, "x")], [(1, "y")]])):
        for i, rows in enumerate(batches):
            folder = str(tmp_path / side / f"part={i}")
            spark.createDataFrame(rows, schema).coalesce(1).write.parquet(folder)
            for f in (tmp_path / side / f"part={i}").glob("*.parquet"):
                os.utime(f, (1e9 + i, 1e9 + i))
    streams = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / s / "part=*"))
        for s in "lr"
    ]
    join = ek.stream_join(*streams, on="k", strategy="random", units=9, state=str(tmp_path / "state"))
    _, sink = run(join, tmp_path)
    assert sorted(sink.table.to_pylist(), key=str) == [{"k": 1, "v": "a", "v_r": "y"}, {"k": 1, "v": "b", "v_r": "y"}]
    for i, careless in enumerate([lambda df, batch: None, lambda df, batch: df.limit(1).collect()]):
        folder = tmp_path / f"careless{i}"
        join = ek.stream_join(*streams, on="k", units=3, state=str(folder / "state"))
        query, _ = run(join, folder, careless)
        assert query.status()["totals"]["pairs"] == 2, "a sink that leaves results alone leaves the state whole"
    found = []

    def second(df, batch):
        """The results' partitions are not the first ones of the job that computes them."""
        found.extend(spark.createDataFrame([(0, "", "")], df.schema).unionAll(df).filter("k > 0").collect())

    run(ek.stream_join(*streams, on="k", units=3, state=str(tmp_path / "second")), tmp_path / "union", second)
    assert len(found) == 2


def test_aggregates(feed, tmp_path):
    """A view kept by the epoch is the aggregate of the batch join, also when an epoch is run twice."""
    (left, right), tables = feed[0](), feed[1]
    join = ek.stream_join(left, right, "l.name = r.name AND l.x <= r.x", units=3, state=str(tmp_path / "state"))
    left_in_view = {"n": ek.agg.count(), "total": ek.agg.sum("r.x"), "mean": ek.agg.avg("l.x - r.x"),
                    "low": ek.agg.min("l.ts"), "high": ek.agg.max("r.name"), "known": ek.agg.count("l.k")}  # fmt: skip
    view = ek.sinks.delta(str(tmp_path / "view"))
    crashed = []

    def crash(step, epoch):
        if (step, epoch) == ("sunk", 1) and not crashed:
            crashed.append(epoch)
            raise RuntimeError("ABORT")

    join.on_step = crash
    aggregate = join.aggregate(["l.k"], **left_in_view)
    assert "r_k" not in str(aggregate.join.join.spec.columns), "columns that nobody reads stay out of the state"
    with pytest.raises(StreamingQueryException, match="ABORT"):
        aggregate.start(view, checkpoint=str(tmp_path / "c"), trigger=NOW).awaitTermination()
    aggregate.start(view, checkpoint=str(tmp_path / "c"), trigger=NOW).awaitTermination()
    expected = (
        tables[0].alias("l").join(tables[1].alias("r"), F.expr("l.name = r.name AND l.x <= r.x")).groupBy("l.k")
        .agg(F.expr("count(*)"), F.expr("sum(r.x)"), F.expr("avg(l.x - r.x)"), F.expr("min(l.ts)"),
             F.expr("max(r.name)"), F.expr("count(l.k)"))
    )  # fmt: skip
    got = DeltaTable(str(tmp_path / "view")).to_pyarrow_table(columns=["k", *left_in_view])
    assert_same_rows(got, expected.toArrow())
    with pytest.raises(ek.EvenkeelError, match="no column 'amount'"):
        join.aggregate("l.k", total=ek.agg.sum("r.amount"))
    with pytest.raises(ek.EvenkeelError, match="remembered for ever"):
        join.aggregate("l.k", names=ek.agg.count("r.name", distinct=True))


def test_distinct_in_a_window(feed, tmp_path):
    """Distinct values count once a window; of windows that are over, only the aggregates are kept."""
    (left, right), tables = feed[0](), feed[1]
    join = ek.stream_join(
        left, right, "k", "left", within=ek.tumbling("50 seconds"), time="ts", units=2, strategy="contrand",
        state=str(tmp_path / "state"),
    )  # fmt: skip
    view = join.aggregate(
        "l.k", n=ek.agg.count(), names=ek.agg.count("r.name", distinct=True), total=ek.agg.sum("r.x", distinct=True),
        mean=ek.agg.avg("l.x", distinct=True),
    )  # fmt: skip
    query = view.start(ek.sinks.delta(str(tmp_path / "view")), checkpoint=str(tmp_path / "c"), trigger=NOW)
    query.awaitTermination()
    due = query.driver.spec.window.useless_before(query.driver.state.snapshot.progress["watermark_before"])
    start = "timestamp_micros(cast(floor(unix_micros(l.ts) / 5e7) * 50000000 AS bigint))"
    on = "l.k = r.k AND floor(unix_micros(l.ts) / 5e7) = floor(unix_micros(r.ts) / 5e7)"
    expected = (
        tables[0].alias("l").join(tables[1].alias("r"), F.expr(on), "left")
        .filter(f"r.k IS NOT NULL OR unix_micros(l.ts) < {due}").groupBy(F.expr(start), "l.k")
        .agg(F.expr("count(*)"), F.expr("count(DISTINCT r.name)"), F.expr("sum(DISTINCT r.x)"),
             F.expr("avg(DISTINCT l.x)"))
    )  # fmt: skip
    got = DeltaTable(str(tmp_path / "view")).to_pyarrow_table()
    assert_same_rows(got.select(["window", "k", "n", "names", "total", "mean"]), expected.toArrow())
    closed = [r for r in got.to_pylist() if r["_names_final"] is not None]
    assert closed and not any(r["_names_set"] for r in closed)
