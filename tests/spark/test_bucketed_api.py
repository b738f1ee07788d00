"""On real shapes: bucketed tables through every door, and what Spark's plan of their joins does not contain."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import evenkeel as ek
from evenkeel import EvenkeelError
from evenkeel.cli import app
from evenkeel.testing import assert_same_rows

bucketed_write = importlib.import_module("evenkeel.bucketed.write")  # the package has a function of that name
LEFT = pa.table({"k": [7] * 60 + [*range(30)] + [None, None], "n": [*range(92)]})
RIGHT = pa.table({"k": [*range(5, 45), None], "n": [*range(41)], "who": [f"w{i}" for i in range(41)]})


@pytest.fixture(autouse=True)
def plain(interpreted):
    return None


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    frames = {"l": spark.createDataFrame(LEFT), "r": spark.createDataFrame(RIGHT)}
    ek.bucketed.write(frames["l"], folder / "l", "k", bucket_size=300)
    count = ek.bucketed.open_table(folder / "l").buckets
    ek.bucketed.write(frames["r"], folder / "r", "k", buckets=count)
    ek.bucketed.write(frames["r"], folder / "r3", "k", buckets=3)
    return folder, frames


def plan_of(df):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        df.explain()
    return out.getvalue()


def theirs(frames, how):
    return frames["l"].join(frames["r"].withColumnRenamed("n", "n_r"), "k", how)


def test_what_a_frame_computes_itself_keeps_its_settings(spark, tmp_path, monkeypatch):
    """Keys of a table that is only read are counted without AQE; a join before it is run as the session says."""
    used = []
    real = bucketed_write.settings
    monkeypatch.setattr(bucketed_write, "settings", lambda spark, values: used.append(values) or real(spark, values))
    spark.range(100).write.parquet(str(tmp_path / "raw"))
    raw = spark.read.parquet(str(tmp_path / "raw"))
    ek.bucketed.write(raw, tmp_path / "a", "id")
    assert used[0] == bucketed_write._COUNTING
    before = {k: spark.conf.get(k) for k in bucketed_write._COUNTING}
    used.clear()
    ek.bucketed.write(raw.groupBy("id").count(), tmp_path / "b", "id")
    assert used[0] == {} and {k: spark.conf.get(k) for k in before} == before


def test_tables_written_side_by_side_leave_the_settings_as_they_were(spark, tmp_path):
    spark.range(3000).selectExpr("id % 100 AS k", "id AS v").write.parquet(str(tmp_path / "raw"))
    names = {*bucketed_write._SETTINGS, *bucketed_write._COUNTING}
    before = {n: spark.conf.get(n, None) for n in names}

    def write(i):
        return ek.bucketed.write(spark.read.parquet(str(tmp_path / "raw")), tmp_path / f"t{i}", "k", buckets=2).rows

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(write, range(3))) == [3000] * 3
    assert {n: spark.conf.get(n, None) for n in names} == before


def test_a_sample_of_wide_rows_is_bounded(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(bucketed_write, "SAMPLE_BYTES", 1 << 20)
    asked = []
    real = bucketed_write._first
    monkeypatch.setattr(bucketed_write, "_first", lambda df, n: asked.append(n) or real(df, n))
    wide = spark.range(300).selectExpr("id AS k", "repeat(cast(id AS string), 5000) AS v")
    assert ek.bucketed.write(wide, tmp_path / "t", "k").rows == 300
    assert asked[0] == 50 and 50 < asked[1] < 300


def test_the_plan_has_no_exchange_and_no_sort(spark, lake):
    folder, frames = lake
    table = ek.bucketed.open_table(folder / "l")
    assert table.meta.sharded and "shards" in repr(table)
    for right in ("r", "r3"):
        for how in ("inner", "left", "full"):
            df = ek.bucketed.join(spark, folder / "l", folder / right, how)
            text = plan_of(df)
            assert "Exchange" not in text and "Sort " not in text, text
            if right == "r" and how != "full":
                assert "Bucketed: true" in text and "MapInArrow" not in text
            assert_same_rows(df, theirs(frames, how))
    left = [t.tableName for t in spark.sql("SHOW TABLES").collect()]
    assert not [name for name in left if name.startswith("evenkeel")], "the entry is gone"


def shuffled_bytes(spark):
    """Written to and read from shuffles by all tasks so far: Spark's own task metrics, summed up by executor."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(False)
    found = [executors.apply(i) for i in range(executors.size())]
    return sum(e.totalShuffleWrite() + e.totalShuffleRead() for e in found)


def test_no_byte_is_shuffled(spark, lake):
    folder, frames = lake
    before = shuffled_bytes(spark)
    for right in ("r", "r3"):
        for how in ("inner", "left", "full", "left_anti"):
            ek.bucketed.join(spark, folder / "l", folder / right, how).collect()
    ek.bucketed.join_many(spark, [folder / "l", folder / "r3", folder / "r"]).collect()
    assert shuffled_bytes(spark) == before
    theirs(frames, "inner").hint("merge").collect()
    spark.range(9).repartition(2).collect()
    assert shuffled_bytes(spark) > before, "the metric sees a shuffle"


def test_what_is_built_on_a_join_is_right(spark, lake):
    """Spark may prune buckets by a filter, and join further by the partitioning that it was told."""
    folder, frames = lake
    joined, expected = ek.bucketed.join(spark, folder / "l", folder / "r", "left"), theirs(frames, "left")
    for condition in ("k = 7", "k IN (3, 7, 11)", "k IS NULL", "k > 20 AND who IS NULL"):
        assert_same_rows(joined.filter(condition), expected.filter(condition))
    inner = ek.bucketed.join(spark, folder / "l", folder / "r")
    again = frames["r"].selectExpr("k", "n AS third")
    assert_same_rows(inner.join(again, "k"), theirs(frames, "inner").join(again, "k"))
    assert_same_rows(inner.groupBy("k").count(), theirs(frames, "inner").groupBy("k").count())
    joined.createOrReplaceTempView("bucket_joined")
    assert spark.sql("SELECT count(*) FROM bucket_joined").first()[0] == expected.count()


def test_data_source(spark, lake):
    folder, frames = lake
    reader = spark.read.format("evenkeel").option("left", str(folder / "l")).option("right", str(folder / "r3"))
    df = reader.option("how", "full").load()
    assert "Exchange" not in plan_of(df)
    assert_same_rows(df, theirs(frames, "full"))
    assert_same_rows(spark.read.format("evenkeel").load(str(folder / "l")), frames["l"])
    with pytest.raises(Exception, match="was given 'left'"):
        spark.read.format("evenkeel").option("left", "x").load()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": '["nope"]'}, "no column 'nope'"),
        ({"columns": "k,n"}, "a JSON list"),
        ({"columns": "[]"}, "No column is asked for"),
        ({"columns": '["n", "n"]'}, "asked for twice"),
        ({"parallelism": "many"}, "a whole number from 1 on"),
        ({"suffixes": '["x"]'}, "no pair of suffixes"),
    ],
)
def test_mistakes_in_options(lake, options, says):
    source = importlib.import_module("evenkeel.bucketed.source")
    for tables in ({"path": f"{lake[0]}/l"}, {"left": f"{lake[0]}/l", "right": f"{lake[0]}/r"}):
        with pytest.raises(EvenkeelError, match="Hint:") as error:
            source.EvenkeelSource({**tables, **options}).schema()
        assert says in str(error.value)


def test_filters_pushed_to_the_source(spark, lake):
    folder, frames = lake
    pushed = spark.read.format("evenkeel").options(left=str(folder / "l"), right=str(folder / "r3"), pushdown="true")
    with pytest.raises(Exception, match="filterPushdown"):
        pushed.load().collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for how, condition in (
            ("full", "k IN (3, 7, 11) AND who IS NULL"),
            ("full", "k IS NULL"),
            ("left_anti", "k >= 2 AND k < 9"),
        ):
            got = pushed.option("how", how).load().filter(condition)
            assert_same_rows(got, theirs(frames, how).filter(condition))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_columns_and_suffixes(spark, lake):
    folder, frames = lake
    df = ek.bucketed.join(spark, folder / "l", folder / "r", suffixes=("_a", "_b"), columns=["n_b", "k"])
    assert df.columns == ["n_b", "k"]
    assert_same_rows(df, theirs(frames, "inner").select("n_r", "k"))
    with pytest.raises(EvenkeelError, match="did you mean"):
        ek.bucketed.join(spark, folder / "l", folder / "r", columns=["whom"])


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_many(spark, lake, how):
    folder, frames = lake
    df = ek.bucketed.join_many(spark, [folder / "l", folder / "r3", folder / "r"], how)
    second = frames["r"].toDF("k", "n_2", "who")
    third = frames["r"].toDF("k", "n_3", "who_3")
    assert_same_rows(df, frames["l"].join(second, "k", how).join(third, "k", how))
    assert "Exchange" not in plan_of(df)


def test_append_and_compact(spark, lake, tmp_path):
    folder, frames = lake
    path = tmp_path / "t"
    ek.bucketed.write(frames["l"], path, "k", bucket_size=300)
    first = ek.bucketed.open_table(path)
    ek.bucketed.write(frames["l"], path, "k", mode="append")
    grown = ek.bucketed.open_table(path)
    assert grown.rows == 2 * first.rows and grown.shards > first.shards, "what grew hot is sharded again"
    twice = frames["l"].unionAll(frames["l"]).join(frames["r"].withColumnRenamed("n", "n_r"), "k", "full")
    assert_same_rows(ek.bucketed.join(spark, path, folder / "r", "full"), twice)
    small = ek.bucketed.compact(spark, path)
    assert all(len(u.files) == 1 for u in small.meta.units) and small.rows == grown.rows
    plan = ek.bucketed.plan(spark, path, folder / "r", "inner")
    assert plan.native_buckets == small.buckets and plan.replicated_bytes > 0
    assert_same_rows(plan.execute(), twice.filter("n IS NOT NULL AND n_r IS NOT NULL"))
    assert_same_rows(ek.bucketed.join(spark, path, folder / "r", "full"), twice)
    assert ek.bucketed.compact(spark, path).meta.generation == small.meta.generation, "nothing to do"
    for df, key, says in (
        (frames["r"], "k", "has the columns"),
        (frames["l"], "n", "has the key"),
    ):
        with pytest.raises(EvenkeelError, match=says):
            ek.bucketed.write(df, path, key, mode="append")


def test_a_path_with_a_scheme(spark, lake, tmp_path):
    """Everything by URL: Spark and pyarrow each open it; the metadata does not say where it lies."""
    folder, frames = lake
    url = f"file://{tmp_path}/t"
    ek.bucketed.write(frames["l"], url, "k", buckets=2)
    ek.bucketed.write(frames["l"], url, "k", mode="append")
    ek.bucketed.compact(spark, url)
    twice = frames["l"].unionAll(frames["l"]).join(frames["r"].withColumnRenamed("n", "n_r"), "k", "left")
    for right in (folder / "r", f"file://{folder}/r3"):
        assert_same_rows(ek.bucketed.join(spark, url, right, "left"), twice)
    assert str(tmp_path) not in (tmp_path / "t/_evenkeel.json").read_text()
    assert "as they were written" in ek.bucketed.inspect(url, check=True)


def test_paths_that_spark_and_the_system_read_differently(spark, tmp_path):
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "near").symlink_to(tmp_path / "far" / "away")
    rows = spark.range(50).toDF("k")
    for path in (f"file://{tmp_path}/a%20b", f"file:{tmp_path}/a b", f"{tmp_path}/near/../c"):
        table = ek.bucketed.write(rows, path, "k", buckets=2)
        assert table.rows == 50 and ek.bucketed.join(spark, path, path).count() == 50
    assert {p.name for p in tmp_path.iterdir()} == {"far", "near", "a%20b", "a b"}
    assert (tmp_path / "far" / "c").is_dir()


def test_nothing_is_committed_that_is_not_seen(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(ek.bucketed.store.Store, "url", lambda self, name: f"file://{tmp_path}/elsewhere/{name}")
    with pytest.raises(EvenkeelError, match="nothing is there for pyarrow"):
        ek.bucketed.write(spark.range(5), tmp_path / "t", "id")
    with pytest.raises(EvenkeelError, match="not a bucketed table"):
        ek.bucketed.open_table(tmp_path / "t")


def test_names_that_are_ours_or_a_parsers(spark, tmp_path):
    """Also a key `a.b` beside a struct `a` with a field `b`, whose range is not the key's."""
    rows = spark.range(600).selectExpr("IF(id % 2 = 0, 7, id) AS k", "id", "named_struct('b', 1) AS s")
    ek.bucketed.write(rows.select("k").distinct(), tmp_path / "r", "k", buckets=2)
    for i, names in enumerate((("k", "_row", "_u"), ("_rows", "_c0", "x"), ("${x}", "${y}", "x"), ("a.b", "x", "a"))):
        named = rows.toDF(*names)
        ek.bucketed.write(named, tmp_path / f"l{i}", names[0], bucket_size=600)
        table = ek.bucketed.open_table(tmp_path / f"l{i}")
        assert table.rows == 600 and table.meta.hot_keys[0].key == ("7",)
        joined = ek.bucketed.join(spark, tmp_path / f"l{i}", tmp_path / "r", "left")
        assert joined.columns == [*names] and joined.count() == 600
        assert ek.bucketed.join(spark, tmp_path / f"l{i}", tmp_path / "r", "left_anti").count() == 0


def test_values_that_python_does_not_have(spark, tmp_path):
    rows = spark.sql("SELECT id AS k, DATE'+10000-01-01' AS d, map(array(id), 1) AS m FROM range(20)")
    assert ek.bucketed.write(rows, tmp_path / "t", "k").rows == 20
    same = ek.bucketed.join(spark, tmp_path / "t", tmp_path / "t", "left_semi")
    assert same.filter("d = DATE'+10000-01-01' AND size(m) = 1").count() == 20


def test_empty_tables(spark, lake, tmp_path):
    folder, frames = lake
    ek.bucketed.write(frames["l"].limit(0), tmp_path / "e", "k")
    assert ek.bucketed.open_table(tmp_path / "e").rows == 0
    assert ek.bucketed.join(spark, tmp_path / "e", folder / "r").count() == 0
    assert ek.bucketed.join(spark, folder / "l", tmp_path / "e", "left").count() == 92
    assert "no rows" in ek.bucketed.inspect(tmp_path / "e")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda df, p: ek.bucketed.write(df, p / "x", "kk"), "did you mean 'k'?"),
        (lambda df, p: ek.bucketed.write(df, p / "x", []), "names no column"),
        (lambda df, p: ek.bucketed.write(df, p / "x", "k", mode="upsert"), "no mode 'upsert'"),
        (lambda df, p: ek.bucketed.write(df, p / "x", "k", bucket_size="many"), "is not a size"),
        (lambda df, p: ek.bucketed.write(df, p / "x", "k", buckets=0), "not a number of buckets"),
        (lambda df, p: ek.bucketed.write(df.selectExpr("array(k) AS k"), p / "x", "k"), "cannot be a bucketing key"),
        (lambda df, p: ek.bucketed.write(df.selectExpr("'a' COLLATE UTF8_LCASE AS k"), p / "x", "k"), "collation"),
        (lambda df, p: ek.bucketed.write(df.selectExpr("k", "parse_json('1') AS v"), p / "x", "k"), "cannot be kept"),
        (lambda df, p: ek.bucketed.write("df", p / "x", "k"), "not a Spark DataFrame"),
        (lambda df, p: ek.bucketed.write(df, p / "l", "k"), "exists already"),
        (lambda df, p: ek.bucketed.join(df.sparkSession, p / "l", p / "r", "cross"), "cross"),
        (lambda df, p: ek.bucketed.join_many(df.sparkSession, [p / "l"]), "two or more"),
        (lambda df, p: ek.bucketed.join_many(df.sparkSession, str(p / "l")), "two or more"),
        (lambda df, p: ek.bucketed.join(df.sparkSession, p / "l", p / "r", columns=["n", "n"]), "asked for twice"),
        (lambda df, p: ek.bucketed.join(df.sparkSession, p / "l", p / "r3", columns=[]), "No column is asked for"),
        (lambda df, p: ek.bucketed.join_many(df.sparkSession, [p / "l", p / "r"], "full"), "join of many tables"),
    ],
)  # fmt: skip
def test_mistakes(spark, lake, call, says):
    folder, frames = lake
    with pytest.raises(EvenkeelError, match="Hint:") as error:
        call(frames["l"], folder)
    assert says in str(error.value)


def test_command(spark, lake, tmp_path):
    pq.write_table(LEFT, tmp_path / "l.parquet")
    pq.write_table(RIGHT, tmp_path / "r.parquet")

    def run(*words):
        done = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    run("bucket", tmp_path / "l.parquet", tmp_path / "lake/l", "--key", "k", "--bucket-size", "300")
    run("bucket", tmp_path / "r.parquet", tmp_path / "lake/r", "--key", "k", "--buckets", "2")
    said = run("inspect", tmp_path / "lake/l", "--check")
    assert "hottest keys" in said and "█" in said and "as they were written" in said
    assert "common factor" in run("bucket-join", tmp_path / "lake/l", tmp_path / "lake/r")
    run("bucket-join", tmp_path / "lake/l", tmp_path / "lake/r", "--how", "left", "--out", tmp_path / "out")
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")), theirs(lake[1], "left"))


def test_tables_that_change_between_looking_and_reading(spark, tmp_path):
    def write(df, name):
        ek.bucketed.write(df, tmp_path / name, key="k", buckets=2, mode="overwrite")

    a, b = spark.range(20).selectExpr("id AS k", "id + 100 AS price", "id AS cost"), spark.range(20).toDF("k")
    write(a, "a")
    write(b, "b")
    plan = ek.bucketed.plan(spark, tmp_path / "a", tmp_path / "b")
    assert plan.explain()
    loaded = spark.read.format("evenkeel").load(str(tmp_path / "a"))
    for _ in range(2):
        write(b, "b")
    with pytest.raises(ek.EvenkeelError, match="written again after"):
        plan.execute()
    write(a.select("k", "cost", "price"), "a")
    with pytest.raises(Exception, match="written again after"):
        loaded.collect()


def test_what_fails_leaves_no_files(spark, tmp_path, monkeypatch):
    df = spark.range(20).toDF("k")
    for _ in range(2):
        ek.bucketed.write(df, tmp_path / "t", key="k", buckets=2, mode="append")
    before = sorted(p.name for p in (tmp_path / "t").iterdir())
    with monkeypatch.context() as full:
        full.setattr(os, "replace", lambda a, b: refuse(b) if str(b).endswith("_evenkeel.json") else os.rename(a, b))
        for action in (
            lambda: ek.bucketed.write(df, tmp_path / "t", key="k", mode="append"),
            lambda: ek.bucketed.compact(spark, tmp_path / "t"),
        ):
            with pytest.raises(ek.EvenkeelError, match="cannot be written: No space left"):
                action()
            assert sorted(p.name for p in (tmp_path / "t").iterdir()) == before
    ek.bucketed.compact(spark, tmp_path / "t")
    assert spark.read.format("evenkeel").load(str(tmp_path / "t")).count() == 40


def refuse(path):
    raise OSError(errno.ENOSPC, "No space left on device", path)
