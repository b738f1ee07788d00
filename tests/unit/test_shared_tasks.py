"""Unit: small regions share tasks where there are fewer cores, as many in each; large ones and hash joins do not."""

from __future__ import annotations

import numpy as np
import pytest

from evenkeel.conditions import Names, parse_on
from evenkeel.plan import Facts, TwoWay, explain, optimize
from evenkeel.stats import JoinStats, SideStats

NAMES = Names(("k",), ("k",))


def planned(hot=20_000, workers=64, cores=2, coalesces=True, scheme="heavy_light", row=64.0, on="k", rest=20):
    counts = np.array([hot] + [rest] * 2000)
    keys = np.arange(1, len(counts) + 1) * 7919
    side = SideStats.from_sample(int(counts.sum()), 0, float(len(counts)), keys, counts, 1.0)
    facts = Facts(row_bytes={"left": row, "right": row}, cores=cores, coalesces=coalesces, broadcast_limit=-1)
    return optimize(TwoWay(parse_on(on, "inner", NAMES), "inner", workers, scheme, facts, JoinStats(side, side)))


@pytest.mark.parametrize(("workers", "cores", "tasks"), [(64, 2, 2), (64, 3, 8), (200, 8, 8), (12, 2, 2), (9, 2, 9)])
def test_a_task_a_core_that_divide_the_regions_and_keep_cores_busy(workers, cores, tasks):
    plan = planned(hot=100, workers=workers, cores=cores)
    assert plan.tasks == tasks and workers % tasks == 0
    assert ("share a task" in explain(plan)) == (tasks < workers)


def test_large_regions_are_tasks():
    assert planned(hot=3_000).tasks < 64
    assert planned(hot=60_000).tasks == 64, "3.6 billion pairs"
    assert planned(hot=100, row=100_000.0).tasks == 64, "gigabytes"


def test_where_spark_may_not_regions_do_not():
    assert planned(hot=100, coalesces=False).tasks == planned(hot=100, cores=None).tasks == 64
    assert planned(hot=100, workers=3, cores=2).tasks == 3, "fewer regions than tasks that two cores want"


def test_what_needs_no_statistics_runs_as_it_is_explained():
    """Such a plan is run without them and explained with them."""
    assert planned(hot=100, scheme="hash").tasks == 64


def test_theta_joins_count_the_pairs_they_check():
    few, many = (planned(n, scheme="one_bucket", on="l.k < r.k OR l.k > r.k + 1", rest=1) for n in (1, 90_000))
    assert few.local is not None and few.local.name == "nested_loop"
    assert few.tasks < many.tasks == 64
