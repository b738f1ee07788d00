"""Against formula (7) and the protocol by hand, then against the contract: units come and go, and no pair is lost."""

from __future__ import annotations

import json

import pytest
from tests.adapted import INPUTS, rows, stored_in
from tests.property.test_adaptive_strategies import check_contract, check_move

from evenkeel.errors import EvenkeelError
from evenkeel.streaming.elastic import ELASTIC, decide, delta, elastic, evened
from evenkeel.streaming.strategies import strategy_named, table_from_json
from evenkeel.streaming.strategies.base import Loads, UnitLoad

S = {"capacity": 100.0, "high": 0.8, "low": 0.3, "aim": 0.6, "patience": 3.0}


def loads(table, total, epoch=0):
    """`total` rows of each input, spread as a biclique or a hash would."""
    units = []
    for u in range(table.units):
        stored = {}
        for i in INPUTS:
            groups = getattr(table, "groups", None)
            mine = sorted({m for g in groups[i] for m in g}) if groups else range(table.units)
            stored[i] = total // len(mine) if u in mine else 0
        units.append(UnitLoad(u, stored, stored, stored))
    return Loads(epoch, units)


def test_formula_seven():
    assert delta(0.9, 0.6, 4) == pytest.approx(2)
    assert delta(0.2, 0.6, 6) == pytest.approx(-4)


def test_three_decisions_in_a_row():
    full, calm = {("left", 0): (360.0, 4)}, {("left", 0): (200.0, 4)}
    times: dict[str, int] = {}
    for expected in ({}, {}, {("left", 0): 2}):
        asked, times = decide(full, times, S)
        assert asked == expected
    _, times = decide(calm, {"left/0": 2}, S)
    assert decide(full, times, S)[0] == {}, "a calm epoch starts the count anew"
    idle = {("left", 0): (80.0, 4)}
    assert decide(idle, {"left/0": -2}, S)[0] == {("left", 0): -2}
    assert decide(idle, {"left/0": 2}, S)[0] == {}


def test_parts_change_hands_only_where_they_must():
    before = (0, 1, 2, 3) * 16
    after = evened(before, range(5))
    assert sorted({after.count(u) for u in range(5)}) in ([12, 13], [13])
    assert sum(a != b for a, b in zip(before, after, strict=True)) == after.count(4)


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("windowed", [0.0, 1.0])
def test_from_few_to_many_and_back(name, windowed):
    strategy = elastic(strategy_named(name), 2, 16)
    table = strategy.start(INPUTS, 2, {"capacity": 100.0, "windowed": windowed})
    memory: dict = {}
    sizes = [table.units]
    for epoch in range(60):
        total = 450 if epoch < 30 else 30
        step = strategy.adapt(table, loads(table, total, epoch), memory)
        memory = json.loads(json.dumps(step.memory))
        if step.table is not None:
            check_contract(step.table, epoch)
            assert table_from_json(json.loads(json.dumps(step.table.to_json()))) == step.table
            if step.moves:
                check_move(table, step.table, epoch)
            else:
                for n, i in enumerate(INPUTS):
                    other = INPUTS[1 - n]
                    key, row, position = rows(40, epoch)
                    asked = step.table.place(other, key, row, position)
                    probed = set(zip(asked.row[asked.probe].tolist(), asked.unit[asked.probe].tolist(), strict=True))
                    held = stored_in(table, i, key, row, position)
                    if any(map(any, getattr(step.table, "draining", {}).values())) or step.table.units >= table.units:
                        assert held <= probed, "rows that stay are probed where they stay"
            table = step.table
            sizes.append(table.units)
    assert max(sizes) >= 15 and sizes[-1] <= 4, sizes
    assert all(2 <= s <= 16 for s in sizes)


def test_fixed_strategies_say_so():
    with pytest.raises(EvenkeelError, match="fixed number") as error:
        elastic(strategy_named("hypercube"), 2, 4)
    assert "Hint:" in str(error.value)
