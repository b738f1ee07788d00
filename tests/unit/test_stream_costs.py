"""On real shapes: BiStream's formulas (1) to (6), by hand and measured in a run of the engine without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.streams import CASES, INPUTS, Stream, spec_of

from evenkeel.streaming import costs
from evenkeel.streaming.costs import Streams

STREAMS = Streams(1000, 600, 10, 20, 50, 30)


def test_formulas_by_hand():
    assert costs.biclique_memory(STREAMS) == 10 * 1000 + 20 * 600
    assert costs.matrix_memory(STREAMS, 4, 4) == 4 * (10 * 1000 + 20 * 600)
    assert costs.matrix_gain_left(STREAMS, 4, 12_000) == 1 - 20 / 12_000 * 600 / 4 == 0.75
    assert costs.matrix_gain_right(STREAMS, 5, 12_000) == pytest.approx(1 - 10 / 12_000 * 1000 / 5)
    assert costs.biclique_traffic(STREAMS, 8, 8, 4, 2) == (8 / 2 + 1) * 500 + (8 / 4 + 1) * 600
    assert costs.matrix_traffic(STREAMS, 4, 4) == 4 * 500 + 4 * 600
    # Random routing is dearer than the matrix by one copy of each row, for as many partitions (section 4.3).
    extra = costs.biclique_traffic(STREAMS, 4, 4, 1, 1) - costs.matrix_traffic(STREAMS, 4, 4)
    assert extra == 500 + 600


def feed(rows):
    rng = np.random.default_rng(3)
    return {
        i: [
            {"k": int(k), "s": "a", "x": 0, "f": 0.0, "t": 0, "n": j}
            for j, k in enumerate(rng.integers(0, 10**6, rows if i == "left" else rows // 2))
        ]
        for i in INPUTS
    }


@pytest.mark.parametrize(
    ("strategy", "m", "n", "d", "e"),
    [("random", 8, 8, 1, 1), ("contrand", 8, 8, 4, 4), ("one_bucket", 4, 4, 0, 0), ("hash", 16, 16, 16, 16)],
)
def test_formulas_as_measured(tmp_path, strategy, m, n, d, e):
    """State and traffic of a run with 16 units, counted in rows."""
    stream = Stream(str(tmp_path / "state"), CASES["equi"], spec_of(CASES["equi"]), strategy, units=16)
    stream.driver.sink = lambda results, epoch: None
    for _ in range(2):
        report = stream.feed(feed(800))
    s = Streams(1600, 800, left_rate=800, right_rate=400)
    stored = sum(x.rows for x in stream.driver.state.snapshot.segments)
    if strategy == "one_bucket":
        assert stored == costs.matrix_memory(s, m, n) == 4 * 2400
        assert report.sent == costs.matrix_traffic(s, m, n)
        # Formulas (3) and (4): of the room for `capacity` rows in a new line of cells, this share is left for new rows
        # of the input that it is made for; the rest is taken by copies of the other input's, as many as each cell has.
        capacity, loads = 1000, stream.driver.loads.units
        for other, gain in (("right", costs.matrix_gain_left(s, n, capacity)),
                            ("left", costs.matrix_gain_right(s, m, capacity))):  # fmt: skip
            copied = np.mean([u.stored[other] for u in loads])
            assert 1 - copied / capacity == pytest.approx(gain) and gain < 1
    elif strategy == "hash":
        assert stored == costs.biclique_memory(s) == 2400
        assert report.sent == 1200, "a unit that holds both inputs is sent a row once, not twice"
    else:
        assert stored == costs.biclique_memory(s) == 2400
        assert report.sent == costs.biclique_traffic(s, m, n, d, e)
        # In the biclique a new unit holds rows of its own input alone: its gain is 1.
        assert all(min(u.stored.values()) == 0 for u in stream.driver.loads.units)


def test_a_hot_key_comes_out_in_pieces(tmp_path):
    """Ten million partners of one row: results leave in batches, and nothing of that size is ever held."""
    from evenkeel.streaming.joiner import PAIRS, Run, probe, sort

    spec = spec_of(CASES["equi"])
    many = pa.table({"_key": pa.array(np.zeros(10_000_000, dtype=np.int64))})
    one = pa.table({"_key": pa.array([0, 1], pa.int64())})
    found = 0
    for stored, probing in probe(Run(many, spec), Run(sort(one, spec), spec), spec, "right"):
        assert len(stored) <= PAIRS and not probing.any()
        found += len(stored)
    assert found == 10_000_000
