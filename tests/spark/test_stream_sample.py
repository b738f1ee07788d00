"""Against an oracle written here: pairs of inputs too large for the driver are counted exactly and sampled evenly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenkeel as ek
from evenkeel.spark import statistics
from evenkeel.types import Exact

ROWS = 12_000


def inputs(spark, seed):
    tables = []
    for i in range(2):
        rng = np.random.default_rng(seed + i)
        keys = np.concatenate([rng.integers(0, 400, ROWS // 4), rng.integers(10**4, 10**6, 3 * ROWS // 4)])
        tables.append(pa.table({"k": pa.array(keys, mask=rng.random(ROWS) < 0.02), "g": rng.integers(0, 3, ROWS)}))
    return tables, [spark.createDataFrame(t) for t in tables]


def pairs_of(tables, beta, grouped):
    left, right = (t.filter(t["k"].is_valid()) for t in tables)
    total = 0
    for g in range(3) if grouped else [None]:
        parts = [t.filter(pc.equal(t["g"], g)) if grouped else t for t in (left, right)]
        a, b = (np.sort(t["k"].to_numpy()) for t in parts)
        total += int((np.searchsorted(b, a + beta, "right") - np.searchsorted(b, a - beta)).sum())
    return total


@pytest.mark.parametrize("grouped", [False, True], ids=["band", "equality and band"])
def test_large_inputs(spark, monkeypatch, seed, grouped):
    monkeypatch.setattr(statistics, "DRIVER_ROWS", 3000)
    tables, (left, right) = inputs(spark, seed)
    on = ("l.g = r.g AND " if grouped else "") + "abs(l.k - r.k) <= 2"
    plan = ek.plan(left, right, on, workers=6, scheme="equi_weight")
    assert plan.tree.ranges.pairs == Exact(float(pairs_of(tables, 2, grouped)))
    load = plan.measure()
    assert load.rows_out.sum() == pairs_of(tables, 2, grouped)
    assert load.weights.max() == pytest.approx(plan.predicted.weights.max(), rel=0.15)
    assert load.skew_degree < 1.3
