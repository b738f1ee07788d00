"""On real shapes: a region whose output would fill the worker many times over leaves it in batches."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.measure import peak_mb

from evenkeel.spark.arrow_join import BATCH, _joiner

ROWS = 20_000
"""On each side; all of them match: 400 million pairs, 6.4 GB of row numbers alone."""


def test_pairs_leave_in_batches():
    """In a process of its own, for the memory it peaked at."""
    child = [sys.executable, "-m", "tests.spark.test_arrow_join"]
    done = subprocess.run(child, cwd=Path(__file__).parents[2], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 800


def _some_pairs() -> None:
    warnings.simplefilter("error")  # DuckDB says so where it keeps a whole result
    sides = pa.array(np.repeat([0, 1], ROWS), pa.int32())
    columns = {"_region": pa.array(np.zeros(2 * ROWS), pa.int32()), "_side": sides}
    columns |= {"_a0": np.zeros(2 * ROWS), "_b0": np.ones(2 * ROWS)}
    columns |= {"x": np.arange(2 * ROWS), "y": np.arange(2 * ROWS)}
    found = _joiner((["x"], ["y"]), 1)(iter(pa.table(columns).to_batches()))
    some = list(itertools.islice(found, 5))
    assert [len(b) for b in some] == [BATCH] * 5 and some[0].schema.names == ["_l_region", "_r_region", "x", "y"]


if __name__ == "__main__":
    _some_pairs()
    print(peak_mb())
