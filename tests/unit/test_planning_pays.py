"""Unit: `auto` plans as long as that can pay, and says what it left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.conditions import Names, Span, parse_on
from evenkeel.plan import Facts, TwoWay, explain, optimize
from evenkeel.plan.cost import ROWS_A_SECOND, could_save
from evenkeel.schemes import equi_weight, scheme_named
from evenkeel.schemes.grids import Shapes
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.types import Absent, Exact


def planned(rows, workers, reach, scheme="auto", cores=None):
    """A band join of keys that are dense in a fifth of the rows, as in the thesis's join X."""
    sides, axes, none = [], [], np.empty(0, dtype=np.int64)
    for seed in (1, 2):
        rng, dense = np.random.default_rng(seed), rows // 5
        x = np.concatenate([rng.integers(0, dense // 6, dense), rng.integers(2 * rows, 5 * rows, rows - dense)])
        axes.append(Axis.of(None, x.astype(float), Exact(float(rows)), Exact(0.0)))
        sides.append(SideStats(Exact(float(rows)), Exact(0.0), Absent(), none, none.astype(float), True))
    ranges = RangeStats(axes[0], axes[1], -float(reach), float(reach), 0.0)
    text = f"abs(l.a - r.b) <= {reach}"
    span = Span("double(_l0)", "double(_r0)", ranges.lo, ranges.hi, 0.0, text)
    condition = replace(parse_on(text, "inner", Names(("a",), ("b",))), spans=(span,))
    facts = Facts(broadcast_limit=-1, cores=cores)
    return optimize(TwoWay(condition, "inner", workers, scheme, facts, JoinStats(*sides), ranges))


@pytest.mark.parametrize(("rows", "fitted"), [(20_000, 1), (4_000_000, 3)])
def test_a_scheme_is_fitted_where_it_can_save_its_planning(rows, fitted):
    plan = planned(rows, 32, 1)
    assert plan.problem is not None
    costs = {c.scheme: c.cost for c in plan.candidates}
    assert plan.chosen is not None and plan.chosen.cost == min(c for s, c in costs.items() if s != "broadcast")
    by_ranges = {"one_bucket", "m_bucket", "equi_weight"}
    assert by_ranges <= costs.keys() | dict(plan.unfitted).keys()
    assert len(costs.keys() & by_ranges) >= fitted
    for scheme, why in plan.unfitted:
        everything = float(plan.chosen.layout.predicted.weights.sum())
        most = could_save(plan.problem, plan.chosen.cost, everything, None)
        assert most <= ROWS_A_SECOND * scheme_named(scheme).planning(32)
        assert f"{scheme:16s} not fitted: {why}" in explain(plan)


def test_larger_inputs_get_more_careful_plans():
    chosen = [planned(rows, 64, 1).chosen for rows in (20_000, 8_000_000)]
    assert chosen[0] is not None and chosen[0].scheme == "one_bucket"
    assert chosen[-1] is not None and chosen[-1].scheme == "equi_weight"
    even = chosen[-1].layout.predicted
    assert even is not None and even.skew_degree < 1.1


def test_what_is_asked_for_does_its_best(monkeypatch):
    """The last two stages of the histogram: always if asked for, with `auto` only where they can pay."""
    real, tiled = equi_weight.monotonic_bsp, []
    monkeypatch.setattr(equi_weight, "monotonic_bsp", lambda *args: tiled.append(1) or real(*args))
    asked = planned(200_000, 32, 16, "equi_weight")
    assert len(tiled) == 1
    own = planned(200_000, 32, 16, cores=2)
    assert len(tiled) == 1 and own.candidate("equi_weight") is not None
    assert asked.chosen is not None and asked.chosen.cost <= own.candidate("equi_weight").cost
    monkeypatch.setattr(equi_weight, "TILING_SECONDS", 0.0)
    planned(200_000, 32, 16, cores=2)
    assert len(tiled) == 2


def test_few_cores_pay_for_every_copy():
    """Regions of one_bucket are even, but their rows are copied: with two cores for 32 regions that takes longer."""
    many, few = planned(100_000, 32, 1), planned(100_000, 32, 1, cores=2)
    assert many.chosen.scheme == "one_bucket" and few.chosen.scheme != "one_bucket"
    assert few.chosen.layout.predicted.replication < many.chosen.layout.predicted.replication


def test_a_plan_made_twice_is_the_same_plan():
    one, two = (planned(2_000_000, 32, 3) for _ in range(2))
    assert [(c.scheme, c.cost) for c in one.candidates] == [(c.scheme, c.cost) for c in two.candidates]
    assert one.unfitted == two.unfitted and one.chosen is not None and one.chosen.scheme == two.chosen.scheme


@given(
    st.integers(2, 700), st.floats(0.5, 1e6), st.floats(0.5, 1e6), st.floats(0.0, 1e4), st.floats(1.0, 1e6),
    st.integers(0, 2**32),
)  # fmt: skip
def test_grids_that_are_not_looked_at_are_not_the_best(workers, left, right, spare, ceiling, seed):
    shapes = Shapes.within(workers, workers, workers, spare)
    loads = np.sort(np.random.default_rng(seed).uniform(0, 1e5, workers))
    args = left, right, left * right, loads, ceiling
    (grid, shipped), _ = shapes._best(*args, len(shapes.cells))
    found, ships = shapes.best(*args)
    assert (found, ships) == (grid, shipped)
