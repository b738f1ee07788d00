"""On real shapes: segments, tiers, expiry, the cache's limit, and a state that somebody else or nobody can write."""

from __future__ import annotations

import errno
import os

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.streams import CASES, INPUTS, Stream, oracle, spec_of

from evenkeel.errors import EvenkeelError
from evenkeel.state import Segment, SegmentCache, StateTable, Tiers, write_segment
from evenkeel.streaming.windows import Window, microseconds
from evenkeel.testing import assert_same_rows

SCHEMA = pa.schema([("_key", pa.int64()), ("_time", pa.int64()), ("l_v", pa.string())])


def rows(*keys):
    return pa.table({"_key": keys, "_time": [10 * k for k in keys], "l_v": [f"v{k}" for k in keys]}, schema=SCHEMA)


def test_one_commit_is_the_whole_state(tmp_path):
    state = StateTable.create(str(tmp_path), SCHEMA, {"query": "q"})
    first = write_segment(state.root, "left", 3, 0, rows(1, 2, 3))
    write_segment(state.root, "left", 3, 0, rows(7))  # a lost attempt: nobody refers to it
    state.commit(0, [first], [], {"epoch": 0, "watermark": 5})
    second = write_segment(state.root, "left", 3, 1, rows(4))
    state.commit(1, [second], [first], {"epoch": 1, "watermark": 6})
    again = StateTable.find(str(tmp_path))
    assert again.snapshot.epoch == 1 and again.snapshot.progress["watermark"] == 6
    assert again.snapshot.segments == (second,)
    assert (second.min_time, second.max_time, second.rows) == (40, 40, 1)
    assert DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["side", "unit", "l_v"]).to_pylist() == [
        {"side": "left", "unit": 3, "l_v": "v4"}
    ]
    other = [tmp_path / "checkpoint" / "offsets" / "0", tmp_path / "results" / "_delta_log" / "0.json"]
    for file in other:
        file.parent.mkdir(parents=True)
        file.touch()
    assert len(state.vacuum(hours=0)) == 2  # the removed segment and the lost attempt's
    assert all(file.exists() for file in other), "what lies below the state is not the state's"
    assert StateTable.find(str(tmp_path)).snapshot.segments == (second,)


def test_two_writers_do_not_mix(tmp_path):
    one = StateTable.create(str(tmp_path), SCHEMA, {"query": "q"})
    two = StateTable.find(str(tmp_path))
    one.commit(0, [], [], {"epoch": 0})
    with pytest.raises(EvenkeelError, match="Somebody else wrote"):
        two.commit(0, [], [], {"epoch": 0})


def test_what_is_not_a_state_is_left_alone(tmp_path):
    from deltalake import write_deltalake

    assert StateTable.find(str(tmp_path / "nothing")) is None
    write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    with pytest.raises(EvenkeelError, match="something else"):
        StateTable.find(str(tmp_path / "other"))


def segments(*sizes, span=10):
    return [Segment(f"p{i}", "left", 0, n, 0, i, i * span, i * span + span) for i, n in enumerate(sizes)]


def test_tiers():
    tiers = Tiers(fanout=3, smallest=10, largest=1000)
    assert tiers.choose(segments(5, 5)) == []
    assert [s.rows for s in tiers.choose(segments(5, 90, 6, 7, 90))] == [5, 6, 7]
    assert [s.rows for s in tiers.choose(segments(80, 90, 5, 70))] == [80, 90, 70]
    assert tiers.choose(segments(1000, 2000, 3000)) == [], "the largest segments are left alone"
    held = Tiers(fanout=2, smallest=10, period=25).choose(segments(5, 5, 5, 5))
    assert max(s.max_time for s in held) - min(s.min_time for s in held) <= 25, "a segment spans one archive period"
    rows_in, rewritten, held = 0, 0, []
    for epoch in range(600):
        held.append(Segment(f"e{epoch}", "left", 0, 10, 0, epoch))
        rows_in += 10
        while group := Tiers(fanout=4, smallest=10).choose(held):
            held = [s for s in held if s not in group]
            held.append(Segment(f"m{epoch}-{rewritten}", "left", 0, sum(s.rows for s in group), 0, epoch))
            rewritten += held[-1].rows
    assert sum(s.rows for s in held) == rows_in
    assert len(held) <= 4 * 6 and rewritten <= 6 * rows_in, "few segments, and each row rewritten a few times"


def test_the_cache_keeps_its_limit_and_is_never_needed(tmp_path):
    root, folder = str(tmp_path / "state"), str(tmp_path / "cache")
    kept = [write_segment(root, "left", 0, i, rows(*range(i, i + 1000))) for i in range(20)]
    cache = SegmentCache(root, folder, limit=100_000)
    for s in kept:
        assert cache.get(s)["_key"][0].as_py() == s.epoch
    assert sum(f.stat().st_size for f in cache.folder.iterdir()) <= 100_000 + 40_000
    cache.retain({kept[-1].path})
    assert len(list(cache.folder.iterdir())) <= 1
    for f in cache.folder.iterdir():
        f.write_bytes(b"broken")
    fresh = SegmentCache(root, folder)
    assert [fresh.get(s)["_key"][0].as_py() for s in kept] == list(range(20))


def test_a_window_keeps_what_it_needs_and_no_more(tmp_path):
    """Theorem 1: whole segments go as soon as no row that is in time can reach them."""
    spec = spec_of(CASES["equi"], window=Window("sliding", 20))
    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec, "contrand", units=4)
    row = {"k": 1, "s": "a", "x": 0, "f": 0.0, "n": 0}
    for epoch in range(30):
        stream.feed({i: [{**row, "t": epoch * 5 + j} for j in range(3)] for i in INPUTS})
        snapshot = stream.driver.state.snapshot
        useless = spec.window.useless_before(snapshot.progress["watermark"])
        assert all(s.max_time >= useless for s in snapshot.segments)
        assert snapshot.rows <= 2 * 3 * (20 / 5 + 3)
    assert_same_rows(stream.results(), oracle(stream)[0])


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec_of(CASES["equi"]), units=2)
    row = {"k": 1, "s": "a", "x": 0, "f": 0.0, "t": 0, "n": 0}
    stream.feed({i: [row] * 3 for i in INPUTS})

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        m.setattr(pq, "write_table", full)
        with pytest.raises(EvenkeelError, match="No space left") as error:
            stream.feed({i: [row] * 2 for i in INPUTS})
        assert "free space" in str(error.value)
    stream.open()
    assert stream.run(0) is None, "epoch 0 is still committed"
    stream.run(1)
    assert_same_rows(stream.results(), oracle(stream)[0])


def test_epochs_leave_no_gap(tmp_path):
    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec_of(CASES["equi"]), units=2)
    with pytest.raises(EvenkeelError, match="ends with epoch -1"):
        stream.driver.run(3, None)


@pytest.mark.parametrize("units", [2, 3, 8, 17])
@pytest.mark.parametrize("strategy", ["hash", "random", "contrand", "one_bucket"])
def test_every_pair_meets_once(strategy, units):
    """The strategies' contract: for rows of one key, one unit stores the one and is probed by the other."""
    from evenkeel.streaming.strategies import strategy_named

    table = strategy_named(strategy).start(INPUTS, units, {})
    rng = np.random.default_rng(units)
    keys = rng.integers(-(2**63), 2**63 - 1, 40)
    placed = {i: table.place(i, keys, rng.integers(-(2**63), 2**63 - 1, 40)) for i in INPUTS}
    for a, b in (INPUTS, INPUTS[::-1]):
        stores, probes = placed[a], placed[b]
        meets = np.zeros(40, dtype=int)
        for i in range(40):
            here = stores.unit[(stores.row == i) & stores.store]
            meets[i] = np.isin(probes.unit[(probes.row == i) & probes.probe], here).sum()
            assert (stores.primary & (stores.row == i)).sum() == 1
        assert (meets == 1).all()
    assert max(p.unit.max() for p in placed.values()) < units


def test_lengths_of_time():
    assert microseconds("within", "1 hour 30 minutes") == 5_400_000_000
    assert microseconds("within", "1.5 ms") == 1500
    for text in ("", "ten minutes", "5", "-1 minute", "3 fortnights"):
        with pytest.raises(EvenkeelError, match="no length of time"):
            microseconds("within", text)
