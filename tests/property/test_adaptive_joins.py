"""Against an oracle (DuckDB): while state moves in every epoch, the results are the batch join of all rows in time.

No Spark: the driver, the units and their migrations are those of the engine. Every epoch's commit is looked at: each
stored row is where the table in force stores it, none lost, none doubled.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_stream_joins import WINDOWS, feeds
from tests.streams import CASES, Stream, cases_for, feed_through, oracle, spec_of

from evenkeel.state.segment import read_segment
from evenkeel.streaming.choice import choose
from evenkeel.streaming.driver import STEPS
from evenkeel.streaming.placing import placed_by
from evenkeel.streaming.strategies import STRATEGIES, strategy_named
from evenkeel.streaming.strategies.base import adapts
from evenkeel.testing import assert_same_rows
from evenkeel.testing.forced import Forced

KINDS = {
    "keys": Forced(("hash", 3)),
    "units": Forced(("hash", 2), ("hash", 16), ("hash", 3)),
    "all": Forced(("hash", 3), ("contrand", 4), ("one_bucket", 6), ("random", 2), ("one_bucket", 4)),
}
APART = Forced(("random", 3), ("one_bucket", 6), ("one_bucket", 2), ("random", 5))
"""For conditions without an equality."""
TOGETHER = Forced(("hash", 3), ("hash", 4), together=True)
LIMITS = [1, 6000, 1 << 24]
"""Bytes an epoch: a segment at a time, a few, or all."""


def where_it_belongs(stream: Stream) -> None:
    """Every row that can still match is stored exactly where the table in force says; segments expire as a whole, so
    of a row that no partner can reach any more some copies may be gone."""
    driver, spec = stream.driver, stream.spec
    wanted: Counter = Counter()
    found: Counter = Counter()
    for s in driver.state.snapshot.segments:
        rows = read_segment(stream.root, s)
        hashes = np.asarray(rows["_row"])
        placed = driver.table.place(s.input, *placed_by(rows, hashes, spec))
        can = np.ones(len(rows), dtype=bool)
        useless = spec.window.useless_before(driver.state.snapshot.progress["watermark"])
        if useless is not None:
            can &= np.asarray(rows["_time"]) >= useless
        values = list(zip(*(rows[c].to_pylist() for c in (*spec.columns[s.input], "_row")), strict=True))
        for r in np.flatnonzero(can):
            found[s.input, s.unit, repr(values[r])] += 1
            units = placed.unit[(placed.row == r) & placed.store]
            assert s.unit in units, "a row is where the table does not store it"
            for u in units:
                wanted[s.input, int(u), repr(values[r])] += 1 / len(units)
    wrong = [k for k in {*found, *wanted} if found[k] != round(wanted[k])]
    assert not wrong, f"lost or doubled: {wrong[:3]}"


def run(strategy, case, window, how, batches, limit, lateness=0, crashes=()):
    return feed_through(strategy, case, WINDOWS[window], how, batches, lateness, crashes, limit, where_it_belongs)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(data=st.data())
def test_equalities(kind, limit, data):
    window = data.draw(st.sampled_from(list(WINDOWS)))
    case = data.draw(st.sampled_from([c for c in CASES if CASES[c].keys]))
    batches = data.draw(feeds())
    stream = run(KINDS[kind], case, window, "inner", batches, limit, data.draw(st.sampled_from([0, 3])))
    if limit == LIMITS[-1]:
        moved = [(m.asked, m.epoch) for m in stream.driver.migrations]
        assert moved == [(e, e) for e in range(len(batches))], "what moves few bytes is in force at once"


@settings(max_examples=10)
@given(data=st.data())
def test_other_conditions(data):
    case = data.draw(st.sampled_from([c for c in CASES if not CASES[c].keys]))
    window = data.draw(st.sampled_from(["none", "sliding"]))
    run(APART, case, window, "inner", data.draw(feeds()), data.draw(st.sampled_from(LIMITS)))


@pytest.mark.parametrize("how", ["left", "full", "left_semi", "left_anti"])
@settings(max_examples=10)
@given(data=st.data())
def test_outer(how, data):
    tactic = data.draw(st.sampled_from([TOGETHER, KINDS["all"], APART]))
    case = data.draw(st.sampled_from([c for c in CASES if CASES[c].keys or tactic is APART]))
    window = data.draw(st.sampled_from(["sliding", "tumbling"]))
    run(tactic, case, window, how, data.draw(feeds()), data.draw(st.sampled_from(LIMITS)), 3)


@pytest.mark.parametrize("strategy", [s.name for s in STRATEGIES if adapts(s)])
@settings(max_examples=8)
@given(data=st.data())
def test_strategies_that_adapt(strategy, data):
    cases = cases_for(strategy_named(strategy))
    window = data.draw(st.sampled_from(["none", "sliding"]))
    run(strategy, data.draw(st.sampled_from(cases)), window, "inner", data.draw(feeds()), LIMITS[-1])


@settings(max_examples=8)
@given(data=st.data())
def test_auto(data):
    """What it begins with stores no content hash; what it becomes needs one."""
    case = data.draw(st.sampled_from(["equi", "band", "theta"]))
    spec = spec_of(CASES[case], window=WINDOWS["sliding"] if case == "theta" else None)
    strategy, _ = choose("auto", spec, 3, 3)
    root = tempfile.mkdtemp(prefix="evenkeel-test-")
    try:
        stream = Stream(f"{root}/state", CASES[case], spec, strategy, units=3)
        for batch in data.draw(feeds()):
            stream.feed(batch)
        assert_same_rows(stream.results(), oracle(stream)[0])
    finally:
        shutil.rmtree(root)


def test_segments_cut_at_once_leave_the_cache(tmp_path):
    """Written and cut in one epoch, they are in no commit that could take them out."""
    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec_of(CASES["equi"]), KINDS["units"])
    for e in range(4):
        rows = [{"k": k, "s": "a", "x": 0, "f": 0.0, "t": 0, "n": e} for k in range(20)]
        stream.feed({"left": rows, "right": rows})
    cache = stream.driver.executor.cache
    live = {cache._file(s.path).name for s in stream.driver.state.snapshot.segments}
    assert {f.name for f in cache.folder.iterdir()} <= live


def test_auto_becomes_a_matrix(tmp_path):
    """In a window, when rows cost more to send than there are pairs to find."""
    spec = spec_of(CASES["theta"], window=WINDOWS["sliding"])
    strategy, _ = choose("auto", spec, 6, 6)
    stream = Stream(str(tmp_path / "state"), CASES["theta"], spec, strategy, units=6)
    for e in range(6):
        row = {"k": 1, "s": "a", "x": 0, "f": 0.0, "t": e, "n": e}
        stream.feed({"left": [row] * 5, "right": [row | {"s": "b" if e > 3 else "a"}] * 3})
    assert stream.driver.table.strategy == "adaptive_one_bucket"
    assert_same_rows(stream.results(), oracle(stream)[0])


@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=4)
@given(data=st.data())
def test_crash_at_every_step(step, data):
    batches = data.draw(feeds())
    crashes = {(data.draw(st.integers(0, len(batches) - 1)), step) for _ in range(4)}
    kind = data.draw(st.sampled_from(list(KINDS)))
    window = data.draw(st.sampled_from(list(WINDOWS)))
    run(KINDS[kind], "equi", window, "inner", batches, data.draw(st.sampled_from(LIMITS)), 0, sorted(crashes))
