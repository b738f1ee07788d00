"""Rows go where the layout says, in Spark as in NumPy; and each input is exchanged exactly once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import evenkeel as ek
from evenkeel import dealing
from evenkeel.schemes.hypercube import CUBES
from evenkeel.spark.multi_exchange import cell_of, hashed, routed

SCHEMES = [c.name for c in CUBES]


@pytest.fixture(scope="module")
def inputs(spark, seed):
    rng = np.random.default_rng(seed)

    def frame(n: int, **columns: float):
        data = {}
        for name, hot in columns.items():
            values = rng.integers(0, 40, n)
            values[rng.random(n) < hot] = 7
            data[name] = pa.array(values, mask=rng.random(n) < 0.05)
        return spark.createDataFrame(pa.table(data))

    return {"R": frame(300, x=0.1, y=0.4), "S": frame(300, y=0.4, z=0.5), "T": frame(300, z=0.5, t=0.0)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spark_routes_as_numpy_does(inputs, scheme):
    plan = ek.plan_multi(inputs, "R.y = S.y AND S.z = T.z", scheme=scheme, workers=24)
    layout, bound = plan.layout, plan._bound
    for i in range(3):
        # The number of a row is made by Spark; everything after it must agree.
        sent = routed(bound, i, layout, stable=True)
        keys = [F.expr(k).alias(f"h{j}") for j, k in enumerate(hashed(bound, i))]
        table = bound.frames[i].select(*keys, F.monotonically_increasing_id().alias("n")).toArrow()
        hashes = np.stack([table[f"h{j}"].to_numpy() for j in range(len(keys))], axis=1)
        mine = layout.route(i, hashes, dealing.number(table["n"].to_numpy()))
        theirs = sent.select(*keys, cell_of(i)).toArrow()
        got = sorted(zip(*(theirs[c].to_pylist() for c in theirs.column_names), strict=True))
        want = sorted((*hashes[r].tolist(), c) for r, c in zip(mine.row, mine.region, strict=True))
        assert got == want


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_exchange_an_input(inputs, scheme):
    for on in ("R.y = S.y AND S.z = T.z", "R.y = S.y AND S.z = T.z AND T.t = R.x", "R.y = S.y AND S.z < T.t"):
        df = ek.multi_join(inputs, on, scheme=scheme, workers=8)
        plan = df._jdf.queryExecution().executedPlan().toString()
        assert plan.count("Exchange ") == plan.count("shufflepartitionid") == 3, plan


def test_routing_is_repeatable(inputs):
    plan = ek.plan_multi(inputs, "R.y = S.y AND S.z = T.z", scheme="random", workers=24)
    once = [sorted(map(tuple, routed(plan._bound, 0, plan.layout, s).collect()), key=repr) for s in (True, False)]
    again = [sorted(map(tuple, routed(plan._bound, 0, plan.layout, s).collect()), key=repr) for s in (True, False)]
    assert once == again
    # Rows without a stable order are told apart by their content: all places are used.
    assert len({row[-1] for row in once[1]}) == len({row[-1] for row in once[0]})
