"""Against an oracle (DuckDB): the merge join of sorted files, for every mode, key type and memory limit."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNull, LessThan, LessThanOrEqual, Not
from tests.oracle import duck_join

from evenkeel.bucketed import merge as merging
from evenkeel.bucketed import sorted_files
from evenkeel.bucketed.columns import OutColumn
from evenkeel.bucketed.pair import Task
from evenkeel.bucketed.run import run_task
from evenkeel.bucketed.source import HIGHEST, LOWEST, _range
from evenkeel.bucketed.store import Store
from evenkeel.testing import assert_same_rows

NAN = float("nan")
HOW = {"inner": "inner", "outer": "left", "semi": "left_semi", "anti": "left_anti"}
VALUES = {
    "long": (pa.int64(), [-(2**63), -1, 0, 5, 2**63 - 1]),
    "byte": (pa.int8(), [-128, 0, 3, 127]),
    "boolean": (pa.bool_(), [False, True]),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0, -0.0, 2.0, float("inf"), NAN]),
    "float": (pa.float32(), [-1.5, 0.0, -0.0, 2.0, NAN]),
    "string": (pa.string(), ["", "Z", "a", "ab", "é", "\U0001f600", "x" * 40]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
    "decimal": (pa.decimal128(38, 2), [Decimal("-9.5"), Decimal("0"), Decimal("12345678901234567890.25")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, 1, 2, 3, 4)]),
}


def in_key_order(table, keys):
    """By Spark's order: NaN last, both zeros equal, text by its bytes."""
    columns = [sorted_files.comparable(table[k].combine_chunks()).to_pylist() for k in keys]
    rows = [tuple(sorted_files._value(v) for v in row) for row in zip(*columns, strict=True)]
    return table.take(pa.array(sorted(range(len(rows)), key=rows.__getitem__), pa.int64()))


def written(folder, name, table, keys, parts, group=7):
    """The table as `parts` sorted files."""
    store = Store.at(folder)
    files = []
    for i in range(parts):
        path = f"{name}-{i}.parquet"
        part = in_key_order(table.take(pa.array(range(i, len(table), parts), pa.int64())), keys)
        pq.write_table(part, folder / path, row_group_size=group, write_page_checksum=True)
        files.append(store.describe(path, 0, 0, tuple(keys)))
    return store, tuple(files)


def joined(folder, left, right, keys, mode, parts=(1, 1), between=None):
    lstore, lfiles = written(folder, "l", left, keys, parts[0])
    rstore, rfiles = written(folder, "r", right, keys, parts[1])
    columns = [OutColumn(k, "left", k, k) for k in keys] + [OutColumn("ln", "left", "ln")]
    fields = [left.schema.field(k) for k in keys] + [left.schema.field("ln")]
    if mode in ("inner", "outer"):
        columns.append(OutColumn("rn", "right", "rn"))
        fields.append(right.schema.field("rn"))
    task = Task("left", mode, lfiles, (rfiles,) if rfiles else (), mode in ("semi", "anti"), 0)
    stores, names = {"left": lstore, "right": rstore}, {"left": keys, "right": keys}
    batches = list(run_task(task, stores, names, columns, pa.schema(fields), between))
    assert all(b.num_rows for b in batches)
    return pa.Table.from_batches(batches, pa.schema(fields))


def expected(left, right, keys, mode):
    on = " AND ".join(f"l.{k} = r.{k}" for k in keys)
    rows = duck_join(left, right, on, HOW[mode])
    width = len(keys) + 1
    return [r[:width] + r[-1:] if mode in ("inner", "outer") else r for r in rows]


def table(kind, values, picks, name):
    return pa.table({"k": pa.array([values[p % len(values)] for p in picks], kind), name: pa.array(range(len(picks)))})


@pytest.fixture
def tiny(monkeypatch):
    """Chunks of a few rows, output of a few rows, and runs that go to a file at once."""
    monkeypatch.setattr(sorted_files, "_batch_rows", lambda footer: 3)
    monkeypatch.setattr(merging, "_out_rows", lambda part, partner: 4)
    monkeypatch.setattr(merging, "LIMIT", 40)


@pytest.mark.parametrize("mode", HOW)
@pytest.mark.parametrize("kind", VALUES)
def test_key_types(tmp_path, tiny, kind, mode, seed):
    arrow, values = VALUES[kind]
    rng = np.random.default_rng(seed)
    left, right = (table(arrow, values, rng.integers(0, len(values), n), c) for n, c in ((40, "ln"), (25, "rn")))
    assert_same_rows(joined(tmp_path, left, right, ["k"], mode, (2, 2)), expected(left, right, ["k"], mode))


@settings(max_examples=30)
@given(
    left=st.lists(st.integers(0, 9), max_size=30),
    right=st.lists(st.integers(0, 9), max_size=30),
    mode=st.sampled_from(list(HOW)),
    parts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_any_rows(tmp_path, tiny, left, right, mode, parts):
    for values in (list(range(10)), [f"k{i}" for i in range(10)]):
        kind = pa.int64() if isinstance(values[0], int) else pa.string()
        tables = table(kind, values, left, "ln"), table(kind, values, right, "rn")
        assert_same_rows(joined(tmp_path, *tables, ["k"], mode, parts), expected(*tables, ["k"], mode))


@pytest.mark.parametrize("mode", HOW)
def test_composite_keys(tmp_path, tiny, mode, seed):
    rng = np.random.default_rng(seed)

    def make(rows, name):
        a, b = rng.integers(0, 3, rows), rng.integers(0, 4, rows)
        return pa.table({"a": a, "b": pa.array([f"b{v}" for v in b]), name: np.arange(rows)})

    left, right = make(40, "ln"), make(30, "rn")
    assert_same_rows(joined(tmp_path, left, right, ["a", "b"], mode, (2, 3)), expected(left, right, ["a", "b"], mode))


def test_a_run_beyond_memory_is_read_from_a_file(tmp_path, monkeypatch):
    """Both sides hold one key many times: the product comes out in batches, the run in none of them whole."""
    monkeypatch.setattr(merging, "LIMIT", 1 << 16)
    left = pa.table({"k": pa.array([7] * 3_000 + [8]), "ln": np.arange(3_001)})
    right = pa.table({"k": pa.array([6] + [7] * 200_000 + [9]), "rn": np.arange(200_002)})
    lstore, lfiles = written(tmp_path, "l", left.slice(0, 5), ["k"], 1)
    rstore, rfiles = written(tmp_path, "r", right, ["k"], 1, 50_000)
    columns = [OutColumn("k", "left", "k", "k"), OutColumn("ln", "left", "ln"), OutColumn("rn", "right", "rn")]
    schema = pa.schema([("k", pa.int64()), ("ln", pa.int64()), ("rn", pa.int64())])
    rows = 0
    task = Task("left", "inner", lfiles, (rfiles,), False, 0)
    for batch in run_task(task, {"left": lstore, "right": rstore}, {"left": ["k"], "right": ["k"]}, columns, schema):
        assert batch.num_rows <= merging.OUT_ROWS
        rows += batch.num_rows
        assert pc.all(pc.equal(batch["k"], 7)).as_py()
    assert rows == 5 * 200_000


def test_row_groups_out_of_reach_are_not_read(tmp_path, monkeypatch):
    """The partner's groups before and behind the driver's keys."""
    left = pa.table({"k": [300, 310], "ln": [0, 1]})
    right = pa.table({"k": np.arange(1000), "rn": np.arange(1000)})
    seen = []
    read = pq.ParquetFile.iter_batches

    def watched(self, *args, **options):
        seen.append(options["row_groups"])
        return read(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    got = joined(tmp_path, left, right, ["k"], "outer")
    assert_same_rows(got, [(300, 0, 300), (310, 1, 310)])
    assert sorted(map(len, seen)) == [1, 3], "three groups of seven rows hold the keys 300 to 310"
    seen.clear()
    got = joined(tmp_path, right.rename_columns(["k", "ln"]), right, ["k"], "outer", between=(500, 501))
    assert sorted(map(len, seen)) == [1, 1] and (500, 500, 500) in [tuple(r.values()) for r in got.to_pylist()]


def test_filters_that_say_something_of_the_key():
    assert [_range(f, "k") for f in (EqualTo(("k",), 5), In(("k",), (3, 9)), GreaterThan(("k",), 5))] == [
        (5, 5),
        (3, 9),
        (6, HIGHEST),
    ]
    assert _range(LessThanOrEqual(("k",), 5), "k") == (LOWEST, 5) and _range(LessThan(("k",), 5), "k") == (LOWEST, 4)
    for other in (
        EqualTo(("n",), 5),
        EqualTo(("k", "x"), 5),
        EqualTo(("k",), "5"),
        IsNull(("k",)),
        Not(IsNull(("k",))),
    ):
        assert _range(other, "k") is None


def test_memory_does_not_grow_with_the_bucket(tmp_path):
    """600 MB a side's bucket, half of it one key: the process that merges it, measured; 4 GB is for the benchmark."""
    command = [sys.executable, "-m", "benchmarks.workloads.repeated", str(tmp_path), "6", "3", "300000"]
    for _ in range(2):  # the first run makes the data, which takes memory of its own
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    assert found["bytes"] > 600e6 and found["rows"] > 300_000
    assert found["peak_mb"] <= 512 and found["peak_mb"] - found["before_mb"] <= 256, found
