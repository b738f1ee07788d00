"""On data at the edge: zones and clocks, numbers without end, restarts that mean something else, places of files."""

from __future__ import annotations

import datetime as dt
import importlib
import math
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel.errors import SinkUnwritable, StateMismatch, UnusableFolder
from evenkeel.testing import assert_same_rows

NOW = {"availableNow": True}
START = dt.datetime(2026, 3, 28, 12, tzinfo=dt.UTC)


class Feed:
    """Two folders of files, a file an epoch, as streams and as tables."""

    def __init__(self, spark, root, schema):
        self.spark, self.root, self.schema = spark, root, schema
        self.files = 0

    def add(self, left, right):
        self.files += 1
        for side, rows in (("l", left), ("r", right)):
            (self.root / side).mkdir(exist_ok=True)
            path = self.root / side / f"{self.files:03d}.parquet"
            pq.write_table(self.spark.createDataFrame(rows, self.schema).toArrow(), path)
            os.utime(path, (1e9 + self.files, 1e9 + self.files))

    def streams(self):
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return [reader.parquet(str(self.root / side)) for side in "lr"]

    def tables(self):
        return [self.spark.read.schema(self.schema).parquet(str(self.root / side)) for side in "lr"]

    def join(self, **options):
        return ek.stream_join(*self.streams(), units=2, state=str(self.root / "state"), **options)


def run(join, root, sink=None, checkpoint="checkpoint"):
    sink = sink or ek.sinks.memory("edges")
    query = join.start(sink, checkpoint=str(root / checkpoint), trigger=NOW)
    query.awaitTermination()
    return query, sink


@pytest.mark.parametrize("on", ["l.f <= r.f", "l.k = r.k AND l.f > r.f"])
def test_numbers_without_end(spark, tmp_path, on):
    feed = Feed(spark, tmp_path, "k int, f double")
    for values in ((1.0, math.inf, -math.inf), (math.nan, 2.0, None)):
        feed.add(*[[(1, v) for v in values]] * 2)
    _, sink = run(feed.join(on=on, strategy="hash" if "l.k" in on else "random"), tmp_path)
    left, right = feed.tables()
    assert_same_rows(sink.table, left.alias("l").join(right.alias("r"), F.expr(on)))


def test_a_session_in_another_zone(spark, tmp_path):
    """Rows that were stored in UTC are merged with rows of Berlin, and shown when they are due."""
    feed = Feed(spark, tmp_path, "k int, ts timestamp")
    times = [START + dt.timedelta(hours=6 * i) for i in range(6)]
    for i in range(3):
        feed.add([(i, times[i]), (i + 50, times[i])], [(i, times[i])])
    options = {"on": "k", "how": "full", "within": "2 hours", "time": "ts", "strategy": "random"}
    out = ek.sinks.delta(str(tmp_path / "out"))
    run(feed.join(**options), tmp_path, out)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for i in range(3, 6):
            feed.add([(i, times[i]), (i + 50, times[i])], [(i, times[i])])
        run(feed.join(**options), tmp_path, out)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    shown = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(r["k"] for r in shown.to_pylist() if r["ts_r"] is not None) == [*range(6)]
    due = sorted(r["k"] for r in shown.to_pylist() if r["ts_r"] is None)
    assert due[:4] == [50, 51, 52, 53] and len(due) == len(set(due))
    kinds = {f.physical_type for f in _columns(tmp_path / "out")}
    assert "INT96" not in kinds


def _columns(table):
    file = next(table.glob("batch-*/*.parquet"))
    schema = pq.read_metadata(file).schema
    return [schema.column(i) for i in range(len(schema))]


def test_days_are_as_long_in_every_zone(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int, d date")
    days = [dt.date(2024, 11, i) for i in range(1, 6)]  # clocks are set back on the third in New York
    feed.add([(1, days[2])], [(1, d) for d in days])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        _, sink = run(feed.join(on="k", within="1 day", time="d"), tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert sorted(sink.table["d_r"].to_pylist()) == days[1:4]


def test_another_clock_is_refused(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int, a timestamp, b timestamp")
    feed.add(*[[(1, START, START)]] * 2)
    run(feed.join(on="k", within="1 minute", time="a"), tmp_path)
    with pytest.raises(StateMismatch, match=r"event time: 'l.a, r.a'.*'l.b, r.b'"):
        run(feed.join(on="k", within="1 minute", time="b"), tmp_path)


def test_a_state_has_one_checkpoint(spark, tmp_path):
    """Also one whose first epoch failed before the state had come to anything."""
    feed = Feed(spark, tmp_path, "k int, v int")
    feed.add([(1, 1)], [(1, 1)])

    def down(df, batch_id):
        raise RuntimeError("no sink")

    with pytest.raises(StreamingQueryException):
        run(feed.join(on="k"), tmp_path, down, "first")
    _, sink = run(feed.join(on="k"), tmp_path, checkpoint="second")
    assert len(sink.table) == 1
    with pytest.raises(StateMismatch, match="another checkpoint"):
        run(feed.join(on="k"), tmp_path, checkpoint="first")
    feed.add([(1, 2)], [])
    url = f"file://{tmp_path}/second"
    query = feed.join(on="k").start(sink, checkpoint=url, trigger=NOW)
    query.awaitTermination()
    assert len(sink.table) == 2, "the same checkpoint by another name"


def test_a_view_goes_with_its_state(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int, v bigint")
    feed.add([(1, 2**62)], [(1, 2**62 + 2)])
    view = ek.sinks.delta(str(tmp_path / "view"))

    def restarted(sink=view, **aggregates):
        run(feed.join(on="k").aggregate(by="l.k", **aggregates), tmp_path, sink)

    mean = {"m": ek.agg.avg("r.v")}
    restarted(**mean)
    assert DeltaTable(str(tmp_path / "view")).to_pyarrow_table()["m"].to_pylist() == [2.0**62 + 2]
    feed.add([(1, 2**62)], [(1, 2**62)])
    restarted(**mean)
    row = DeltaTable(str(tmp_path / "view")).to_pyarrow_table().to_pylist()[0]
    assert (row["_m_count"], row["m"]) == (4, 2.0**62)
    with pytest.raises(StateMismatch, match=r"another aggregate: m = avg.*m = sum"):
        restarted(m=ek.agg.sum("r.v"))
    with pytest.raises(StateMismatch, match="there is no view"):
        restarted(ek.sinks.delta(str(tmp_path / "elsewhere")), **mean)


def test_a_process_taken_for_dead_does_not_put_back_an_older_view(spark, tmp_path, monkeypatch):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,)], [(1,)])
    path = str(tmp_path / "view")

    def count(by="l.k"):
        run(feed.join(on="k").aggregate(by=by, n=ek.agg.count()), tmp_path, ek.sinks.delta(path))

    count()
    module = importlib.import_module("evenkeel.streaming.structured.aggregate")
    write = module.write_deltalake

    def held_up(at, table, **options):
        """Meanwhile another process has done this epoch and one more."""
        mine = options["commit_properties"].app_transactions[0]
        theirs = CommitProperties({}, app_transactions=[Transaction(mine.app_id, mine.version + 1)])
        write(path, pa.table({"k": pa.array([7], pa.int32()), "n": [7]}), mode="overwrite", commit_properties=theirs)
        write(at, table, **options)

    feed.add([(1,)], [(1,)])
    monkeypatch.setattr(module, "write_deltalake", held_up)
    with pytest.raises(StreamingQueryException, match="Somebody else wrote"):
        count()
    assert DeltaTable(path).to_pyarrow_table()["n"].to_pylist() == [7]


def test_a_view_that_is_ahead_of_its_state_keeps_its_checkpoint(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,)], [(1,)])
    view = ek.sinks.delta(str(tmp_path / "view"))

    def crash(step, epoch):
        if step == "sunk":
            raise RuntimeError("ABORT")

    join = feed.join(on="k")
    join.on_step = crash
    with pytest.raises(StreamingQueryException, match="ABORT"):
        run(join.aggregate(by="l.k", n=ek.agg.count()), tmp_path, view)
    with pytest.raises(StateMismatch, match="another checkpoint"):
        run(feed.join(on="k").aggregate(by="l.k", n=ek.agg.count()), tmp_path, view, "fresh")
    run(feed.join(on="k").aggregate(by="l.k", n=ek.agg.count()), tmp_path, view)
    assert DeltaTable(view.path).to_pyarrow_table()["n"].to_pylist() == [1]


def test_an_input_of_which_nothing_is_read(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,), (2,)], [(5,), (6,), (7,)])
    view = ek.sinks.delta(str(tmp_path / "view"))
    run(feed.join(on=None, how="cross").aggregate(by="l.k", n=ek.agg.count()), tmp_path, view)
    shown = DeltaTable(str(tmp_path / "view")).to_pyarrow_table()
    assert sorted(zip(*shown.to_pydict().values(), strict=True)) == [(1, 3), (2, 3)]


def test_where_results_go(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = ek.sinks.delta("out")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    sink(spark.range(3), 0)
    assert len(DeltaTable(str(tmp_path / "out")).to_pyarrow_table()) == 3
    monkeypatch.setattr(type(tmp_path), "glob", lambda self, pattern: [])
    with pytest.raises(SinkUnwritable, match="none of its files is there"):
        sink(spark.range(3), 1)
    with pytest.raises(SinkUnwritable, match="batch_id"):
        ek.sinks.parquet(str(tmp_path / "files"))(spark.range(3).toDF("Batch_Id"), 0)


@pytest.mark.parametrize(("name", "said"), [("a%20b", "'%20'"), ("a#b", "'#'"), ("a?b", "'?'"), ("a\\b", "'\\'")])
def test_folders_that_would_be_looked_for_elsewhere(spark, tmp_path, name, said):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,)], [(1,)])
    with pytest.raises(UnusableFolder, match=re.escape(f"{said} in its name")):
        ek.stream_join(*feed.streams(), on="k", state=str(tmp_path / name))
    with pytest.raises(UnusableFolder, match=re.escape(f"{said} in its name")):
        ek.sinks.delta(f"file://{tmp_path}/{name}")
    assert not any(p.name.startswith("a") for p in tmp_path.iterdir())


def test_folders_of_another_machine(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,)], [(1,)])
    with pytest.raises(UnusableFolder, match="no path of a file system"):
        ek.stream_join(*feed.streams(), on="k", state="s3://bucket/state")
    with pytest.raises(UnusableFolder, match="no path of a file system"):
        ek.sinks.delta("s3://bucket/results")
    with pytest.raises(UnusableFolder, match="not a path"):
        ek.stream_join(*feed.streams(), on="k", state=None)


def test_odd_folders_that_are_fine(spark, tmp_path):
    feed = Feed(spark, tmp_path, "k int")
    feed.add([(1,), (2,)], [(1,)])
    state, results = f"file://{tmp_path}/50% of [it]", f"{tmp_path}/é a+b"
    join = ek.stream_join(*feed.streams(), on="k", units=2, state=state)
    run(join, tmp_path, ek.sinks.delta(results))
    assert (tmp_path / "50% of [it]" / "_delta_log").is_dir()
    assert DeltaTable(results).to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize("window", [{}, {"within": "1 minute", "time": "ts", "lateness": "9 seconds"}])
def test_clauses_about_one_side_guard_its_key_and_keep_rows_out_of_the_state(spark, tmp_path, window):
    feed = Feed(spark, tmp_path, "s string, ok int, ts timestamp")
    rows = [("1", 1, START), ("2", 0, START), ("none", 1, START + dt.timedelta(seconds=9)), ("3", 1, START)]
    for _ in range(2):
        feed.add(rows, rows)
    on = r"cast(l.s AS int) = cast(r.s AS int) AND l.s RLIKE '^[0-9]+$' AND r.s RLIKE '^[0-9]+$' AND r.ok = 1"
    query, sink = run(feed.join(on=on, **window), feed.root)
    if window:  # rows that cannot match still tell the time
        assert query.driver.state.snapshot.progress["watermark"] == START.timestamp() * 1e6
    assert_same_rows(sink.table, ek.join(*feed.tables(), on=on).toArrow())
    held = DeltaTable(str(feed.root / "state")).to_pyarrow_table()
    assert sorted(filter(None, held["r_s"].to_pylist())) == ["1", "1", "3", "3"]
    assert "none" not in held["l_s"].to_pylist()
