"""On real shapes: the command joins and explains files of every format, and its mistakes are said in words."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.oracle import duck_join
from typer.testing import CliRunner

from evenkeel.cli import app, main, said_by_spark
from evenkeel.errors import UnreadableInput
from evenkeel.testing import assert_same_rows

RIGHT = pa.table({"id": [1, 1, 4], "name": ["ann", "amy", "eve"]})
LEFT = pa.table({"user": [1, 1, 2, None], "t": [10, 20, 30, 40]})


@pytest.fixture
def files(tmp_path):
    pq.write_table(LEFT, tmp_path / "left.parquet")
    pyarrow.csv.write_csv(RIGHT, tmp_path / "right.csv")
    rows = zip(*RIGHT.to_pydict().values(), strict=True)
    (tmp_path / "right.json").write_text("\n".join(f'{{"id": {i}, "name": "{n}"}}' for i, n in rows))
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)


@pytest.mark.parametrize("right", ["right.csv", "right.json"])
def test_join(spark, files, right):
    out = files / f"out-{right}"
    done = run("join", files / "left.parquet", files / right, "--on", "l.user = r.id", "--how", "full", "--out", out)
    assert done.exit_code == 0
    assert_same_rows(spark.read.parquet(str(out)), duck_join(LEFT, RIGHT, "l.user = r.id", "full"))


def test_explain_and_formats(spark, files):
    said = run("explain", files / "left.parquet", files / "right.csv", "--on", "l.user = r.id", "--workers", 4)
    assert "schemes considered" in said.output and said.exit_code == 0
    out = files / "semi"
    words = ("--on", "l.user = r.id", "--how", "left_semi", "--format", "csv", "--scheme", "heavy_light")
    run("join", files / "left.parquet", files / "right.csv", *words, "--out", out)
    back = spark.read.csv(str(out), header=True, inferSchema=True)
    assert_same_rows(back, [(1, 10), (1, 20)])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("explain", "nowhere.parquet", "nowhere.csv", "--on", "a"), "there is no such file or folder"),
        (("explain", "{left}", "{right}", "--on", "l.usr = r.id"), "did you mean 'user'?"),
        (("explain", "{left}", "{right}", "--on", "l.user = = r.id"), "l.user = = r.id"),
        (("explain", "{left}", "{right}", "--on", "l.user = r.id", "--how", "fulll"), "did you mean 'full'?"),
        (("explain", "{left}", "{right}", "--on", "l.user = r.id", "--workers", "0"), "at least one worker"),
        (("join", "{left}", "{right}", "--on", "l.user = r.id", "--out", "{left}"), "exists already"),
        (("join", "{left}", "{right}", "--on", "a", "--out", "{left}", "--overwrite"), "is read from there"),
        (("bucket-join", "{left}/t", "{right}", "--out", "{left}", "--overwrite"), "is read from there"),
    ],
)
def test_mistakes(spark, files, words, says, monkeypatch, capsys):
    places = {"left": files / "left.parquet", "right": files / "right.csv"}
    monkeypatch.setattr("sys.argv", ["evenkeel", *(w.format(**places) for w in words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert says in said and "Hint:" in said and "Traceback" not in said


def test_a_file_that_spark_cannot_read(spark, files, monkeypatch, capsys):
    (files / "broken.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    words = ["explain", str(files / "broken.parquet"), str(files / "right.csv"), "--on", "l.user = r.id"]
    monkeypatch.setattr("sys.argv", ["evenkeel", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err
    assert stopped.value.code == 1 and "Spark could not do it" in said and "broken.parquet" in said
    assert "Traceback" not in said


def test_an_error_of_spark_in_one_line():
    text = """An error occurred while calling o1.save.
    : org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030
        at org.apache.spark.Some.where(Some.scala:1)
    Caused by: java.io.IOException: No space left on device
        at java.base/java.io.FileOutputStream.writeBytes(Native Method)"""
    said = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030 (No space left on device)"
    assert said_by_spark(text) == said


def test_an_empty_folder_is_no_target_that_exists(spark, files):
    (files / "empty").mkdir()
    done = run("join", files / "left.parquet", files / "right.csv", "--on", "l.user = r.id", "--out", files / "empty")
    assert done.exit_code == 0, done.output


def test_columns_in_any_case(spark, files):
    rows = [(1, 2, "a")]
    spark.createDataFrame(rows, "k int, v int, x string").write.parquet(str(files / "a.parquet"))
    spark.createDataFrame(rows, "k int, v int, y string").write.parquet(str(files / "b.parquet"))
    done = run("join", files / "a.parquet", files / "b.parquet", "--on", "K,V", "--out", files / "c")
    assert done.exit_code == 0
    assert_same_rows(spark.read.parquet(str(files / "c")), [(1, 2, "a", "a")])


def test_multi_join(spark, files):
    out = files / "three"
    words = ["multi-join", "--on", "R.user = S.id AND S.id = T.id"]
    for name, path in (("R", "left.parquet"), ("S", "right.csv"), ("T", "right.json")):
        words += ["--input", f"{name}={files / path}"]
    said = run(*words, "--workers", "4")
    assert said.exit_code == 0 and "chosen:" in said.output
    assert run(*words, "--out", out).exit_code == 0
    assert spark.read.parquet(str(out)).count() == 8  # two rows of user 1, two names for each, twice
    with pytest.raises(UnreadableInput, match="NAME=PATH"):
        run("multi-join", "--on", "id", "--input", "right.csv")
