"""Failure is data: writers die at every step, files are damaged; readers see the old table, the new one or an error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import evenkeel as ek
from evenkeel import EvenkeelError
from evenkeel.bucketed.metadata import FILE
from evenkeel.bucketed.run import run_task
from evenkeel.bucketed.source import Request, _columns, _metas, planned, result_schema
from evenkeel.bucketed.store import _CHECKED, MARKER, Store
from evenkeel.testing import assert_same_rows

STEPS = ("announced", "counted", "staged", "placed", "committed", "cleaned")
OLD = pa.table({"k": [1, 1, 2, None], "n": [1, 2, 3, 4]})
NEW = pa.table({"k": [5, 5, 5, 6], "n": [5, 6, 7, 8]})
ASK = pa.table({"k": [1, 5, 6, 9], "m": [1, 2, 3, 4]})


class Died(BaseException):
    """Not an error that anything may catch and mend."""


def rows(path):
    """What a reader of the files that the metadata lists sees."""
    meta = ek.bucketed.open_table(path).meta
    tables = (pq.read_table(Path(path) / f.path, partitioning=None) for f in meta.files)
    return [tuple(r.values()) for table in tables for r in table.to_pylist()]


@pytest.fixture(scope="module")
def frames(spark):
    return {n: spark.createDataFrame(t) for n, t in (("old", OLD), ("new", NEW), ("ask", ASK))}


@pytest.fixture(autouse=True)
def plain(interpreted):
    return None


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_dies_leaves_the_old_table_or_the_new(spark, frames, tmp_path, step):
    path = tmp_path / "t"
    ek.bucketed.write(frames["old"], path, "k", buckets=2)

    def stop(done):
        if done == step:
            raise Died

    with pytest.raises(Died):
        ek.bucketed.write(frames["new"], path, "k", bucket_size=200, mode="overwrite", progress=stop)
    expected = NEW if step in ("committed", "cleaned") else OLD
    assert_same_rows(rows(path), expected)
    ek.bucketed.write(frames["new"], path, "k", buckets=3, mode="overwrite")
    assert_same_rows(rows(path), NEW)
    kept = ek.bucketed.open_table(path).meta
    left = {p.name for p in path.iterdir() if p.is_dir()}
    assert left == {f.path.split("/")[0] for f in kept.files} | set(kept.retired), "what a dead writer left is gone"


@pytest.mark.parametrize("step", ["staged", "placed"])
def test_killed_outright(spark, tmp_path, step):
    """The same with SIGKILL, in a process of its own that writes the files as Spark would and dies at the step."""
    path = tmp_path / "t"
    ek.bucketed.write(spark.createDataFrame(OLD), path, "k", buckets=2)
    script = f"""
import os, signal, sys, json
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import pyarrow.parquet as pq, pyarrow as pa
from evenkeel.bucketed import finish
from evenkeel.bucketed.layout import BucketLayout
from evenkeel.bucketed.store import Store
store = Store.at({str(path)!r})
old = store.read_meta()
store.begin()
os.mkdir(store.where("_staging-0123456789ab"))
pq.write_table(pa.table({{"k": [5], "n": [5]}}), store.where("_staging-0123456789ab/part-00000-x-c000.snappy.parquet"))
if {step!r} == "staged":
    os.kill(os.getpid(), signal.SIGKILL)
files = finish.place(None, store, "_staging-0123456789ab", "0123456789ab", old, BucketLayout(2, {{}}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (path / MARKER).exists()
    assert_same_rows(rows(path), OLD)
    ek.bucketed.write(spark.createDataFrame(NEW), path, "k", buckets=2, mode="append")
    assert_same_rows(rows(path), pa.concat_tables([OLD, NEW]))
    assert not (path / MARKER).exists() and not list(path.glob("*0123456789ab"))


COMPACT_AND_DIE = """
import os, signal, sys
import pyarrow as pa
import evenkeel as ek
from evenkeel.bucketed.store import Store

path, step, when = sys.argv[1], sys.argv[2], int(sys.argv[3])

def dying(done):
    global when
    if done == step:
        when -= 1
        if when == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def watched(name):
    real = getattr(Store, name)
    def act(*args):
        dying(f"before {name}")
        out = real(*args)
        dying(f"after {name}")
        return out
    setattr(Store, name, act)

for name in ("sum_up", "describe", "commit", "drop", "end"):
    watched(name)

class Here:
    \"\"\"Runs the tasks of a compaction in this process: killing it kills them in the middle of their work.\"\"\"
    def range(self, start, end, step, parts):
        self.ids = pa.RecordBatch.from_pydict({"id": list(range(start, end))})
        return self
    def mapInArrow(self, each, fields):
        self.each = each
        return self
    def toArrow(self):
        return pa.Table.from_batches(self.each(iter([self.ids])))

ek.bucketed.compact(Here(), path, progress=dying)
"""


@pytest.mark.parametrize(
    ("step", "when", "merged"),
    [
        ("announced", 1, False),
        ("before sum_up", 2, False),
        ("after describe", 1, False),
        ("placed", 1, False),
        ("before commit", 1, False),
        ("after commit", 1, True),
        ("before drop", 1, True),
        ("before end", 1, True),
    ],
)
def test_compaction_killed_outright(spark, frames, tmp_path, step, when, merged):
    """SIGKILL in a compaction, between two shards and at every step: no row changes, and the next one finishes it."""
    path, both = tmp_path / "t", pa.concat_tables([OLD, NEW])
    ek.bucketed.write(frames["old"], path, "k", buckets=2)
    ek.bucketed.write(frames["new"], path, "k", mode="append")
    (path / "_staging-0123456789ab").mkdir()  # so that the one that dies has something to remove
    before = ek.bucketed.open_table(path).meta
    command = [sys.executable, "-c", COMPACT_AND_DIE, str(path), step, str(when)]
    died = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    now = ek.bucketed.open_table(path).meta
    assert (now.generation > before.generation) is merged
    assert_same_rows(rows(path), both)
    matching = [r for r in _tuples(both) if r[0] is not None]
    assert_same_rows(ek.bucketed.join(spark, path, path, how="left_semi"), matching)
    done = ek.bucketed.compact(spark, path)
    assert all(len(u.files) == 1 for u in done.meta.units)
    assert_same_rows(rows(path), both)
    ek.bucketed.write(frames["new"], path, "k", buckets=2, mode="overwrite")
    ek.bucketed.write(frames["new"], path, "k", buckets=2, mode="overwrite")
    kept = ek.bucketed.open_table(path).meta
    left = {p.name for p in path.iterdir()} - {FILE}
    assert left == {f.path.split("/")[0] for f in kept.files} | set(kept.retired), "what it left is gone"


def _tuples(table):
    return [tuple(r.values()) for r in table.to_pylist()]


class Recorder:
    """Copies of a table's folder before and after everything that a writer does to it: what a SIGKILL there leaves."""

    def __init__(self, monkeypatch, path, into):
        self.path, self.into, self.copies = path, into, []
        for name in ("begin", "move", "commit", "drop", "end", "sum_up"):
            monkeypatch.setattr(Store, name, self._watched(getattr(Store, name)))

    def _watched(self, real):
        def act(store, *args):
            self.take()
            try:
                return real(store, *args)
            finally:
                self.take()

        return act

    def take(self, step=None):
        if self.path.exists():
            copy = self.into / str(len(self.copies))
            shutil.copytree(self.path, copy)
            self.copies.append(copy)


@pytest.mark.parametrize("act", ["write", "overwrite", "append", "compact"])
def test_killed_at_every_change_of_the_folder(spark, frames, tmp_path, monkeypatch, act):
    """The folder as it was at every moment is the old table or the new one, and the next writer takes it on."""
    path = tmp_path / "t"
    if act != "write":
        ek.bucketed.write(frames["old"], path, "k", buckets=2)
    if act == "compact":
        ek.bucketed.write(frames["new"], path, "k", mode="append")
    both = pa.concat_tables([OLD, NEW])
    before, after = {"write": (None, NEW), "overwrite": (OLD, NEW), "append": (OLD, both), "compact": (both, both)}[act]
    old = None if before is None else ek.bucketed.open_table(path).meta.generation
    (tmp_path / "copies").mkdir()
    with monkeypatch.context() as patched:
        seen = Recorder(patched, path, tmp_path / "copies")
        if act == "compact":
            ek.bucketed.compact(spark, path, progress=seen.take)
        elif act == "append":
            ek.bucketed.write(frames["new"], path, "k", mode="append", progress=seen.take)
        else:
            mode = "error" if act == "write" else act
            ek.bucketed.write(frames["new"], path, "k", bucket_size=200, mode=mode, progress=seen.take)
    found = []
    for copy in seen.copies:
        try:
            meta = ek.bucketed.open_table(copy).meta
        except EvenkeelError as error:
            assert before is None and ("bucketed table" in str(error) or "being written" in str(error))
            found.append("old")
            continue
        found.append("old" if meta.generation == old else "new")
        assert_same_rows(rows(copy), before if found[-1] == "old" else after)
    assert len(found) >= 8 and found == sorted(found, reverse=True) and set(found) == {"old", "new"}
    assert_same_rows(rows(path), after)
    halfway = seen.copies[found.index("new") - 1]
    (halfway / MARKER).unlink(missing_ok=True)  # its writer lives: it is this process
    ek.bucketed.write(frames["ask"], halfway, "k", buckets=2, mode="overwrite")
    assert_same_rows(rows(halfway), ASK)


def test_a_table_that_was_never_finished(spark, frames, tmp_path):
    def stop(done):
        raise Died

    path = tmp_path / "t"
    with pytest.raises(Died):
        ek.bucketed.write(frames["old"], path, "k", buckets=2, progress=stop)
    with pytest.raises(EvenkeelError, match="not a bucketed table"):
        ek.bucketed.open_table(path)
    (path / MARKER).write_text('{"host": "elsewhere", "pid": 1}')
    for act in (lambda: ek.bucketed.open_table(path), lambda: ek.bucketed.write(frames["old"], path, "k", buckets=2)):
        with pytest.raises(EvenkeelError, match="being written by process 1 on elsewhere"):
            act()
    (path / MARKER).unlink()
    ek.bucketed.write(frames["old"], path, "k", buckets=2)
    assert_same_rows(rows(path), OLD)


def test_two_writers(spark, frames, tmp_path):
    path = tmp_path / "t"
    ek.bucketed.write(frames["old"], path, "k", buckets=2)

    def meanwhile(done):
        if done == "staged":
            (path / MARKER).unlink()  # as if somebody had taken the writer for dead
            ek.bucketed.write(frames["new"], path, "k", buckets=2, mode="append")

    with pytest.raises(EvenkeelError, match="Another writer committed"):
        ek.bucketed.write(frames["new"], path, "k", buckets=2, mode="overwrite", progress=meanwhile)
    assert_same_rows(rows(path), pa.concat_tables([OLD, NEW]))


def test_a_flipped_byte_anywhere_is_an_error_or_harmless(spark, frames, tmp_path):
    """Every 37th byte of a file, by the Arrow merge; some of them by Spark's own scan, which has Hadoop's sums."""
    left, right = tmp_path / "l", tmp_path / "r"
    ek.bucketed.write(frames["new"], left, "k", buckets=1)
    ek.bucketed.write(frames["ask"], right, "k", buckets=2)
    expected = [(5, n, 2) for n in (5, 6, 7)] + [(6, 8, 3)]
    data = next(left.glob("data-*/_shard=0/*.parquet"))
    whole = data.read_bytes()
    request = Request.of({"left": str(left), "right": str(right)})

    def by_arrow():
        _CHECKED.clear()
        metas = _metas(request)
        columns = _columns(request, metas)
        schema = to_arrow_schema(result_schema(metas, columns), timezone="UTC")
        stores = {"left": Store.at(left), "right": Store.at(right)}
        keys = {s: m.names for s, m in metas.items()}
        return [
            tuple(r.values())
            for t in planned(request, metas).tasks
            for b in run_task(t, stores, keys, columns, schema)
            for r in b.to_pylist()
        ]

    assert_same_rows(by_arrow(), expected)
    for at in range(0, len(whole), 37):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(EvenkeelError, match=data.name):
            by_arrow()
    data.write_bytes(whole)
    ek.bucketed.write(frames["ask"], right, "k", buckets=1, mode="overwrite")
    native = ek.bucketed.plan(spark, left, right)
    assert native.native_buckets == 1
    for at in (10, len(whole) // 2, len(whole) - 30):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(Exception, match=r"(?i)checksum"):
            native.execute().collect()
    (data.parent / f".{data.name}.crc").unlink()
    data.write_bytes(whole)
    assert not ek.bucketed.plan(spark, left, right).native_buckets, "without its sums a file is not left to Spark"
    data.write_bytes(whole[:-50])
    with pytest.raises(EvenkeelError, match="bytes where the table's metadata says"):
        by_arrow()
    data.unlink()
    with pytest.raises(EvenkeelError, match="is missing"):
        ek.bucketed.inspect(left, check=True)


def test_a_flipped_byte_of_a_compacted_file_on_sparks_own_path(spark, frames, tmp_path):
    """They are not written by Spark; page headers and footers are summed up all the same, and NULL keys' files."""
    left, right = tmp_path / "l", tmp_path / "r"
    for mode in ("error", "append"):
        ek.bucketed.write(frames["old"], left, "k", buckets=1, mode=mode)
    ek.bucketed.compact(spark, left)
    ek.bucketed.write(frames["ask"], right, "k", buckets=1)
    expected = [(1, n, 1) for n in (1, 2)] * 2 + [(2, 3, None)] * 2 + [(None, 4, None)] * 2
    plan = ek.bucketed.plan(spark, left, right, "left")
    assert plan.native_buckets == 1
    assert_same_rows(plan.execute(), expected)
    for kind in ("data-*/_shard=0", "nulls-*"):
        data = next(f for f in left.glob(f"{kind}/*.parquet") if str(f.relative_to(left)) in rows_of(left))
        whole = data.read_bytes()
        for at in (6, len(whole) // 3, len(whole) - 40, len(whole) - 6):
            data.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(Exception, match=r"(?i)checksum"):
                _CHECKED.clear()
                ek.bucketed.join(spark, left, right, "left").collect()
        data.write_bytes(whole)


def rows_of(path):
    """Rows by file, of the files that are the table now."""
    return {f.path: f.rows for f in ek.bucketed.open_table(path).meta.files}


def test_damaged_metadata(spark, frames, tmp_path):
    path = tmp_path / "t"
    ek.bucketed.write(frames["old"], path, "k", buckets=2)
    text = (path / FILE).read_text()
    (path / FILE).write_text(text.replace('"rows": 1', '"rows": 2', 1))
    with pytest.raises(EvenkeelError, match="damaged"):
        ek.bucketed.join(spark, path, path)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "photo.jpg").write_text("x")
    with pytest.raises(EvenkeelError, match="other things in it"):
        ek.bucketed.write(frames["old"], foreign, "k")
    with pytest.raises(EvenkeelError, match="not a bucketed table"):
        ek.bucketed.open_table(foreign)
    with pytest.raises(EvenkeelError, match="no bucketed table"):
        ek.bucketed.open_table(tmp_path / "nowhere")


def test_a_frame_outlives_one_overwrite(spark, frames, tmp_path):
    left, right = tmp_path / "l", tmp_path / "r"
    ek.bucketed.write(frames["old"], left, "k", buckets=2)
    ek.bucketed.write(frames["ask"], right, "k", buckets=3)
    before = ek.bucketed.join(spark, left, right)
    ek.bucketed.write(frames["new"], left, "k", buckets=2, mode="overwrite")
    assert_same_rows(before, [(1, 1, 1), (1, 2, 1)])
    assert ek.bucketed.join(spark, left, right).count() == 4
