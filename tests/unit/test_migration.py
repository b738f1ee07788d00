"""Against the definition: whatever the two tables are, a migration puts each row where the second one stores it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.streams import CASES, INPUTS, Stream, oracle, spec_of

from evenkeel.errors import EvenkeelError
from evenkeel.state import Segment
from evenkeel.state.migration import Stage, changes, choose, destinations, share, swap
from evenkeel.streaming.choice import parse
from evenkeel.streaming.elastic import elastic
from evenkeel.streaming.key_loads import STEPS, heaviest_keys
from evenkeel.streaming.strategies import strategy_named
from evenkeel.streaming.structured.query import units_of
from evenkeel.streaming.windows import Window
from evenkeel.testing import assert_same_rows

layouts = st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=12)


def pairs(layout):
    found = [(r, u) for r, units in enumerate(layout) for u in sorted(units)]
    return np.array([r for r, _ in found], dtype=np.int64), np.array([u for _, u in found], dtype=np.int64)


@given(layouts, st.data())
def test_every_copy_is_supplied_once(before, data):
    after = [data.draw(st.sets(st.integers(0, 7), min_size=1, max_size=5)) for _ in before]
    supplied = []
    for unit in range(6):
        mine = [r for r, units in enumerate(before) if unit in units]
        here, then = ([layout[r] for r in mine] for layout in (before, after))
        for to, rows in destinations(unit, len(mine), pairs(here), pairs(then)).items():
            supplied += [(mine[r], to) for r in rows]
            if to == unit:
                assert all(unit in after[mine[r]] for r in rows)
    assert sorted(supplied) == sorted((r, u) for r, units in enumerate(after) for u in units)


def test_a_row_that_was_left_behind_is_its_only_copy():
    nowhere = np.array([3, 4])
    moved = destinations(0, 2, (np.arange(2), nowhere), (np.array([0, 0, 1]), np.array([3, 5, 0])))
    assert {u: r.tolist() for u, r in moved.items()} == {3: [0], 5: [0], 0: [1]}


def segments(sizes):
    return [Segment(f"p{i}", "left", i % 3, n, n, i) for i, n in enumerate(sizes)]


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 300), st.integers(1, 8))
def test_bounded_steps_come_to_an_end(sizes, limit, units):
    live, stage, steps = segments(sizes), Stage(), 0
    while True:
        chosen, last = choose(live, stage, limit)
        assert sum(s.size for s in chosen) <= limit or len(chosen) == 1
        shared = share(chosen, range(units))
        assert sorted(s.path for mine in shared.values() for s in mine) == sorted(s.path for s in chosen)
        done = [Stage({s.path: 0 for s in mine}, seconds=1.0) for mine in shared.values()]
        stage = Stage.from_json(stage.then(Stage().beside(done)).to_json())
        steps += 1
        if last:
            break
    assert stage.seconds == steps and stage.done == {s.path for s in live}
    added, removed = changes(live, swap(stage, live))
    assert not removed and [s.path for s in added] == [s.path for s in live if s.unit != 0]
    assert all(s.unit == 0 for s in added)


@given(st.lists(st.integers(0, 40), max_size=200), st.lists(st.integers(0, 40), max_size=60), st.integers(1, 9))
def test_heaviest_keys_are_counted_exactly(stored, probing, most):
    runs = [np.sort(np.array(stored[i::3], dtype=np.int64)) for i in range(3)]
    asked = np.sort(np.array(probing, dtype=np.int64))
    none = np.empty(0, dtype=np.int64)
    found = heaviest_keys({"left": runs[:2], "right": []}, {"left": runs[2], "right": none},
                          {"left": none, "right": asked}, most)  # fmt: skip
    assert [k.key for k in found["left"]] == [k.key for k in found["right"]]
    for left, right in zip(found["left"], found["right"], strict=True):
        assert left.stored == stored.count(left.key) and left.stored_now == stored[2::3].count(left.key)
        assert right.probing == probing.count(left.key) and right.stored == left.probing == 0
    weight = lambda k: stored.count(k) / max(1, len(stored)) + probing.count(k) / max(1, len(probing))  # noqa: E731
    best = sorted({*stored, *probing}, key=lambda k: (-weight(k), k))[:most]
    assert [k.key for k in found["left"]] == best


def test_a_heavy_key_of_a_long_run_is_not_missed():
    rng = np.random.default_rng(1)
    run = np.sort(np.concatenate([rng.integers(-(2**62), 2**62, 50 * STEPS), np.full(100, 77), np.full(60, -5)]))
    none = np.empty(0, dtype=np.int64)
    found = heaviest_keys({"left": [run]}, {"left": none}, {"left": none}, 2)["left"]
    assert [(k.key, k.stored) for k in found] == [(77, 100), (-5, 60)]


def in_use(table):
    """Units that rows are stored in; a number that was drained may wait for its next use."""
    groups = getattr(table, "groups", None)
    return table.units if groups is None else len({u for gs in groups.values() for g in gs for u in g})


ROW = {"s": "a", "x": 0, "f": 0.0}


@pytest.mark.parametrize("strategy", ["hash", "random", "contrand", "fastjoin"])
@pytest.mark.parametrize("window", [Window(), Window("sliding", 40)], ids=["none", "sliding"])
def test_two_to_sixteen_to_three_units(tmp_path, strategy, window):
    """Elastic units: the load rises until there are sixteen, and falls until there are three."""
    spec = spec_of(CASES["equi"], window=window)
    tactic = elastic(strategy_named(strategy), 2, 16)
    options = {"capacity": 6.0, "patience": 1.0, **({"windowed": 1.0} if window.kind != "none" else {})}
    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec, tactic, units=2, options=options)
    rng = np.random.default_rng(3)
    seen = []
    for epoch in range(24):
        rows = 14 if epoch < 10 else 1
        stream.feed({
            i: [{**ROW, "k": int(rng.integers(0, 9)), "t": epoch * 10 + int(rng.integers(0, 10)), "n": n}
                for n in range(rows)]
            for i in INPUTS
        })  # fmt: skip
        seen.append(in_use(stream.driver.table))
        if epoch % 5 == 4:
            stream.open()
    assert max(seen) == 16
    if window.kind != "none":
        assert seen[-1] <= 4, seen
    assert_same_rows(stream.results(), oracle(stream)[0])


def test_units_and_options_as_written():
    assert units_of(8) == (8, 8) and units_of("4..32") == (4, 32) and units_of(" 2 .. 2 ") == (2, 2)
    for text in ("", "4", "4-32", "0..3", "9..4", "1..100000", "a..b"):
        with pytest.raises(EvenkeelError, match="neither a number nor a range") as error:
            units_of(text)
        assert "Hint:" in str(error.value)
    assert parse("fastjoin(theta=2.2, sa=1)") == ("fastjoin", {"theta": 2.2, "sa": 1.0})
    for text in ("contrand(d=4", "contrand(d)", "contrand(d=x)", "contrand(d=-1)", "contrand(d=inf)"):
        with pytest.raises(EvenkeelError, match="cannot be read"):
            parse(text)
