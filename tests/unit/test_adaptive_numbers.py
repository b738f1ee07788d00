"""Against numbers worked out by hand: the papers' examples, lemmas and guarantees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapted import INPUTS

from evenkeel.streaming import monitor
from evenkeel.streaming.strategies.adaptive_one_bucket import AdaptiveOneBucket, Group, powers
from evenkeel.streaming.strategies.base import KeyLoad, Loads, UnitLoad
from evenkeel.streaming.strategies.hypercube import CubeTable, Grid, HyperCube, KeyRows, desired, resized
from evenkeel.streaming.strategies.key_selection import Annealing, Pair, greedy_fit, sa_fit
from evenkeel.streaming.strategies.relief import Side
from evenkeel.streaming.strategies.reservoir import MOST, Reservoir


class TestStreamingHyperCube:
    """Section 3.3, with |S(b1)| = 300 as its formulas have it."""

    OUT = 100 * 300 + 50 * 200

    def test_running_example(self):
        b1, b2 = KeyRows(100, 300), KeyRows(50, 200)
        assert self.OUT == 40_000
        assert desired(b1, self.OUT, 8) == pytest.approx((1.414, 4.243), abs=1e-3)
        assert desired(b2, self.OUT, 8) == pytest.approx((0.707, 2.828), abs=1e-3)
        assert [resized(side, wanted) for side, wanted in zip((2, 2), desired(b1, self.OUT, 8), strict=True)] == [2, 4]
        assert [resized(side, wanted) for side, wanted in zip((1, 4), desired(b2, self.OUT, 8), strict=True)] == [1, 4]

    def test_only_b1_grows(self):
        table = CubeTable(8, INPUTS, {1: Grid(2, 2, (0, 1, 2, 3)), 2: Grid(1, 4, (4, 5, 6, 7))})
        keys = {u: {"left": [KeyLoad(1, 50, 0, 0)], "right": [KeyLoad(1, 150, 0, 0)]} for u in range(4)}
        keys |= {u: {"left": [KeyLoad(2, 50, 0, 0)], "right": [KeyLoad(2, 50, 0, 0)]} for u in range(4, 8)}
        units = [UnitLoad(u, {i: sum(k.stored for k in keys[u][i]) for i in INPUTS}, keys=keys[u]) for u in range(8)]
        new = HyperCube().adapt(table, Loads(0, units), {}).table
        assert isinstance(new, CubeTable)
        assert new.grids[2] == table.grids[2]
        grid = new.grids[1]
        assert (grid.rows, grid.cols) == (2, 4) and len(set(grid.units)) == 8
        assert np.array(grid.units).reshape(2, 4)[:, :2].tolist() == [[0, 1], [2, 3]], "tasks that were there stay"

    def test_a_grid_is_halved_only_where_units_are_too_full(self):
        """Key 2 is a quarter of key 1 and has as large a grid: it shrinks once some unit is full."""
        grids = {1: Grid(2, 4, tuple(range(8))), 2: Grid(2, 4, tuple(range(8, 16)))}
        for light, sides in ((0, (2, 4)), (20_000, (1, 1))):
            units = []
            for u in range(16):
                key, many = (1, 4) if u < 8 else (2, 1)
                keys = {"left": [KeyLoad(key, 200 * many, 0, 0)], "right": [KeyLoad(key, 100 * many, 0, 0)]}
                stored = {i: keys[i][0].stored + (light if u == 3 else 0) for i in INPUTS}
                units.append(UnitLoad(u, stored, keys=keys))
            new = HyperCube().adapt(CubeTable(16, INPUTS, grids), Loads(0, units), {}).table
            after = grids[2] if new is None else new.grids.get(2, Grid(1, 1, (2,)))
            assert (after.rows, after.cols) == sides

    def test_factor_of_two(self):
        assert resized(4, 2.0) == 4 and resized(4, 8.0) == 4
        assert resized(4, 1.9) == 2 and resized(4, 8.1) == 8
        assert resized(1, 0.1) == 1


loads_of_units = st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 500)), min_size=3, max_size=12)


class TestFastJoin:
    @settings(max_examples=60)
    @given(units=loads_of_units, cut=st.lists(st.floats(0, 1), min_size=2, max_size=20), anneal=st.booleans())
    def test_the_degree_of_imbalance_falls(self, units, cut, anneal):
        """Section IV-B: LI' < LI, or equal where other units are as heavy and as light."""
        stored, probing = (np.array(c, dtype=float) for c in zip(*units, strict=True))
        before = stored * probing
        i, j = int(np.argmax(before)), int(np.argmin(before))
        share = np.array(cut) / max(sum(cut), 1e-9)
        items = np.floor(share * stored[i]), np.floor(share[::-1] * probing[i])
        pair = Pair(stored[i], probing[i], stored[j], probing[j])
        chosen = sa_fit(pair, *items, Annealing(seed=1, steps=20)) if anneal else greedy_fit(pair, *items, 0.0)
        moved = [float(x[chosen].sum()) for x in items]
        assert float(pair.benefit(*items)[chosen].sum()) <= pair.gap + 1e-6
        stored[[i, j]] += [-moved[0], moved[0]]
        probing[[i, j]] += [-moved[1], moved[1]]
        after = stored * probing
        gap = pair.gap - float(pair.benefit(*items)[chosen].sum())
        assert after[i] - after[j] == pytest.approx(gap), "equation (9) is exact"
        if i != j and after.min() > 0:
            assert after.max() <= before.max() + 1e-6
            assert after.min() >= before.min() - 1e-6

    @settings(max_examples=80)
    @given(
        units=loads_of_units, rows=st.integers(1, 3000), probes=st.integers(1, 3000), at=st.integers(0, 11),
        budget=st.sampled_from([np.inf, 1000.0, 0.0]),
    )  # fmt: skip
    def test_a_hot_key_is_laid_over_idle_units(self, units, rows, probes, at, budget):
        """No row is lost or doubled, no unit is lifted far above the rest, nothing beyond the budget moves."""
        stored, probing = (np.array(c, dtype=float) for c in zip(*units, strict=True))
        n, i, key, none = len(stored), at % len(stored), 77, np.zeros(len(stored))
        stored[i] += rows
        probing[i] += probes
        held = [{key: (float(rows), float(probes))} if u == i else {} for u in range(n)]
        side = Side(
            stored.copy(), probing.copy(), list(range(n)), {key: np.array([i])}, 64, none.copy(), none.copy(), held,
            [[u] for u in range(n)], none.copy(), stored.copy(), budget,
        )  # fmt: skip
        before = side.loads
        moved = side.absorb()
        assert side.spent <= budget and side.stored.sum() == pytest.approx(stored.sum())
        where = set(side.units_of(key).tolist())
        assert {u for u in range(n) if key in side.held[u]} == where
        assert sum(h[key][0] for h in side.held if h) == pytest.approx(rows)
        rest = stored - np.where(np.arange(n) == i, rows, 0), probing - np.where(np.arange(n) == i, probes, 0)
        for u in range(n):
            assert side.probing[u] == pytest.approx(rest[1][u] + (probes if u in where else 0))
        if moved:
            assert monitor.imbalance(side.loads) < monitor.imbalance(before) / 2
            assert side.loads.max() <= 1.7 * monitor.load(*rest).max() + rows * (probing.max() + probes) / 64
        else:
            assert where == {i} and (side.loads == before).all()

    def test_li_is_finite(self):
        assert monitor.imbalance(monitor.load(np.array([0.0, 9.0]), np.array([0.0, 9.0]))) == 100.0
        assert monitor.imbalance(monitor.load(np.zeros(4), np.zeros(4))) == 1.0

    def test_noise_is_smoothed_and_change_believed(self):
        assert monitor.rates([1000.0], np.array([1040.0]))[0] == 1020.0
        assert monitor.rates([1000.0], np.array([3000.0]))[0] == 3000.0

    def test_a_move_has_to_pay(self):
        before, after = np.array([100.0, 10.0]), np.array([60.0, 50.0])
        few, many = np.array([10.0, 10.0]), np.array([1e6, 1e6])
        assert monitor.pays(before, after, np.array([100.0, 10.0]), few, payback=8)
        assert not monitor.pays(before, after, np.array([100.0, 10.0]), many, payback=8)
        assert not monitor.pays(before, before, np.array([100.0, 10.0]), few, payback=8)

    def test_sub_windows(self):
        window = monitor.SubWindows(2, 1)
        totals = []
        for rows in (5, 7, 1, 0):
            window.push(np.array([rows]))
            totals.append(int(window.total[0]))
        assert totals == [5, 12, 8, 1]


class TestAdaptiveOneBucket:
    @settings(max_examples=100)
    @given(st.integers(1, 6), st.integers(1, 10**6), st.integers(1, 10**6), st.floats(1, 2), st.floats(1, 2))
    def test_one_step_between_decision_points(self, power, left, right, grown_left, grown_right):
        """Lemma 4.2: when neither input has more than doubled, the optimum is at most one step away."""
        size = 1 << power
        shapes = [Group(1 << b, size >> b, tuple(range(size))) for b in range(power + 1)]
        best = min(shapes, key=lambda g: g.load(left, right))
        now = (left * grown_left, right * grown_right)
        least = min(g.load(*now) for g in shapes)
        assert best.better(*now).load(*now) == pytest.approx(least)
        assert best.load(*now) <= 1.25 * least + 1e-6, "the competitive ratio"

    @pytest.mark.parametrize("units", [4, 16, 20, 64])
    @pytest.mark.parametrize("seed", range(3))
    def test_competitive_and_amortised(self, units, seed):
        """A unit's input load stays within 1.25 of the optimal, and migrations within twice the traffic."""
        rng = np.random.default_rng(seed)
        strategy = AdaptiveOneBucket()
        table, memory = strategy.start(INPUTS, units, {}), {}
        rows = np.array([1000.0, 1000.0])
        sent, moved = 0.0, 0.0
        for epoch in range(400):
            growth = rng.exponential([1.0, 1.0]) * rows.sum() * rng.choice([[0.02, 0.001], [0.001, 0.02]])
            rows = rows + growth
            for g in table.groups:
                sent += len(g.cells) / units * (growth[0] * g.m + growth[1] * g.n)
            loads = Loads(epoch, [
                UnitLoad(u, {"left": int(rows[0] * len(g.cells) / units / g.n),
                             "right": int(rows[1] * len(g.cells) / units / g.m)})
                for g in table.groups for u in g.cells
            ])  # fmt: skip
            step = strategy.adapt(table, loads, memory)
            memory = step.memory
            if step.table is not None:
                for a, b in zip(table.groups, step.table.groups, strict=True):
                    share = rows * len(a.cells) / units
                    moved += share[0] * max(0, b.m - a.m) + share[1] * max(0, b.n - a.n)
                table = step.table
            for g in table.groups if epoch > 10 else ():
                size = len(g.cells)
                least = min(Group(1 << b, size >> b, ()).load(*rows) for b in range(size.bit_length()))
                assert g.load(*rows) <= 1.3 * least, "1.25, and what an epoch brings at once"
        assert moved <= 2 * sent

    def test_what_can_stay_stays(self):
        square = Group(4, 4, tuple(range(16)))
        wide = square.wider()
        assert (wide.n, wide.m) == (2, 8) and wide.taller() == square
        for x in range(4):
            for y in range(4):
                unit = square.cells[x * 4 + y]
                at = wide.cells.index(unit)
                assert (at // 8, at % 8) == (x % 2, y + 4 * (x // 2))

    def test_groups_and_sizes_of_rows(self):
        assert powers(20) == [16, 4] and powers(48) == [32, 16] and powers(7) == [4, 2, 1]
        wide_rows = Group(4, 4, tuple(range(16))).better(100 * 8.0, 100 * 1.0)
        assert (wide_rows.n, wide_rows.m) == (8, 2)


def test_a_reservoir_is_as_if_its_rate_had_been_so_from_the_start():
    rng = np.random.default_rng(5)
    sample, everything = Reservoir.empty(INPUTS), {i: [] for i in INPUTS}
    for _ in range(20):
        rows = {i: (rng.random(900), rng.integers(-(2**63), 2**63 - 1, 900)) for i in INPUTS}
        for i in INPUTS:
            everything[i].append(rows[i])
        sample = sample.with_rows(rows)
        sample = Reservoir.from_json(sample.to_json())
    assert sample.rate < 1
    for i in INPUTS:
        hashes = np.concatenate([h for _, h in everything[i]])
        kept = hashes[hashes.view(np.uint64).astype(float) < sample.rate * 2.0**64]
        assert len(kept) <= MOST and kept.tolist() == sample.hashes[i].tolist()
