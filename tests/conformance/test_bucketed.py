"""Conformance, against an oracle (Spark's own join on the raw rows): bucketed joins of every kind."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.conformance.test_two_way import HOWS

import evenkeel as ek
from evenkeel.testing import assert_same_rows


def rows(keys, prefix):
    return pa.table({"k": pa.array(keys, pa.int64()), f"{prefix}n": pa.array(range(len(keys)), pa.int32())})


LEFT = rows([7] * 90 + [11] * 30 + [k % 50 for k in range(90)] + [None] * 9, "l")
RIGHT = rows([7] * 15 + [k % 70 for k in range(35, 105)] + [None] * 5, "r")
TINY = 300
"""Bytes a bucket: the two hot keys are sharded, nothing else is."""


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Both inputs in buckets of several counts, plain and sharded."""
    folder = tmp_path_factory.mktemp("bucketed")
    frames = {"l": spark.createDataFrame(LEFT), "r": spark.createDataFrame(RIGHT)}
    for name, df in frames.items():
        for count in (4, 6, 8):
            ek.bucketed.write(df, folder / f"{name}{count}", "k", buckets=count)
        ek.bucketed.write(df, folder / f"{name}s", "k", bucket_size=TINY)
    return folder, frames


LAYOUTS = {
    "equal": ("l4", "r4"),
    "multiple": ("l8", "r4"),
    "coprime but for two": ("l4", "r6"),
    "sharded on the left": ("ls", "r4"),
    "sharded on the right": ("l6", "rs"),
    "sharded on both": ("ls", "rs"),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(spark, interpreted, tables, layout, how):
    folder, frames = tables
    left, right = LAYOUTS[layout]
    got = ek.bucketed.join(spark, folder / left, folder / right, how)
    expected = frames["l"].join(frames["r"], "k", how)
    assert got.columns == expected.columns
    assert_same_rows(got, expected)


def test_the_layouts_are_what_they_are_called(tables):
    folder, _ = tables
    for name in ("ls", "rs"):
        meta = ek.bucketed.open_table(folder / name).meta
        assert meta.sharded and len(meta.sharded) < meta.buckets
        assert max(len(u) for u in meta.by_bucket.values()) > 2
