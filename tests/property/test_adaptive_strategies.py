"""Against the contract: whatever tables a strategy reaches, each pair meets once, and moving state loses nothing.

Strategies are driven by simulated loads; the rows that are checked are real ones, of many per key.
"""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapted import ADAPTIVE, BAND, INPUTS, WORLDS, reached, rows, stored_in

from evenkeel.streaming.strategies import STRATEGIES, strategy_named, table_from_json

COUNT = 60


def check_contract(table, seed):
    made = {i: rows(COUNT, seed + n) for n, i in enumerate(INPUTS)}
    placed = {i: table.place(i, *made[i]) for i in INPUTS}
    strategy = strategy_named(table.strategy)
    for i, p in placed.items():
        assert np.bincount(p.row, p.primary, minlength=COUNT).tolist() == [1.0] * COUNT
        assert p.store[p.primary].all() and p.unit.min() >= 0 and p.unit.max() < table.units
        assert len(set(zip(p.row.tolist(), p.unit.tolist(), strict=True))) == len(p.row), f"{i}: twice in one unit"
    for a, b in (INPUTS, INPUTS[::-1]):
        held = np.zeros((COUNT, table.units), dtype=bool)
        asks = held.copy()
        held[placed[a].row[placed[a].store], placed[a].unit[placed[a].store]] = True
        asks[placed[b].row[placed[b].probe], placed[b].unit[placed[b].probe]] = True
        meets = held.astype(int) @ asks.T.astype(int)
        if strategy.needs_equality:
            may = made[a][0][:, None] == made[b][0][None, :]
        elif getattr(strategy, "needs_band", False):
            x, y = (made[a], made[b]) if a == "left" else (made[b], made[a])
            may = (x[2][:, None] - y[2][None, :] >= BAND["lo"]) & (x[2][:, None] - y[2][None, :] <= BAND["hi"])
            may = may if a == "left" else may.T
        else:
            may = np.ones((COUNT, COUNT), dtype=bool)
        assert (meets[may] == 1).all(), table


def check_exceptions(table, seed):
    """`exceptions` say what `place` does, for the keys they list and for no other."""
    key, row, position = rows(COUNT, seed)
    for i in INPUTS:
        known = table.exceptions.get(i, {})
        placed = table.place(i, key, row, position)
        for n in range(COUNT):
            codes = sorted(placed.codes[placed.row == n].tolist())
            listed = known.get(int(key[n]))
            if listed is not None:
                assert codes == sorted(listed[int(row[n]) % len(listed)])


def check_move(before, after, seed):
    """B's rule: a copy stays where the new table stores it; the smallest unit of the old sends it where it is new."""
    for n, i in enumerate(INPUTS):
        made = rows(COUNT, seed + n)
        old, new = stored_in(before, i, *made), stored_in(after, i, *made)
        sender = {r: min(u for q, u in old if q == r) for r, _ in old}
        kept = {(r, u) for r, u in old if (r, u) in new}
        sent = {(r, u) for r, u in new if (r, u) not in old and r in sender}
        assert kept | sent == new and not kept & sent


@pytest.mark.parametrize("strategy", ADAPTIVE, ids=lambda s: s.name)
@settings(max_examples=6)
@given(data=st.data())
def test_tables_on_the_way(strategy, data):
    world = data.draw(st.sampled_from(list(WORLDS)))
    units = data.draw(st.sampled_from([1, 2, 3, 5, 8, 13]))
    seed = data.draw(st.integers(0, 10_000))
    ratio = data.draw(st.sampled_from([1, 1, 8]))
    for before, table, _ in reached(strategy, world, units, seed, ratio=ratio):
        check_contract(table, seed)
        check_exceptions(table, seed)
        again = table_from_json(json.loads(json.dumps(table.to_json())))
        assert again == table and pickle.loads(pickle.dumps(table)) == table
        if before is not None:
            assert table.version > before.version
            check_move(before, table, seed)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
@pytest.mark.parametrize("units", [2, 7, 16])
def test_first_tables(strategy, units):
    table = strategy.start(INPUTS, units, BAND if getattr(strategy, "needs_band", False) else {})
    check_contract(table, units)
    assert table_from_json(json.loads(json.dumps(table.to_json()))) == table


@pytest.mark.parametrize(
    ("strategy", "world", "ratio"),
    [("fastjoin", "flips", 1), ("hypercube", "zipf", 1), ("adaptive_one_bucket", "uniform", 8),
     ("adaptive_equi_weight", "uniform", 1)],
)  # fmt: skip
def test_they_do_adapt(strategy, world, ratio):
    assert len(reached(strategy_named(strategy), world, 8, 1, ratio=ratio)) > 1
