"""Implementation against implementation: the simulator's loads are the engine's; and its pictures and errors."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import local_engine

import evenkeel as ek
from evenkeel.errors import EvenkeelError
from evenkeel.simulate import HotKey, Sorted, Wandering, Zipf
from evenkeel.simulate.distributions import parse
from evenkeel.simulate.optimum import static_heaviest
from evenkeel.simulate.rows import grains
from evenkeel.streaming.strategies.keyed import parts_for

WORLD = HotKey(0.2, None, Zipf(0.3, 20_000))


@pytest.mark.parametrize("strategy", ["hash", "contrand", "one_bucket", "fastjoin", "hypercube"])
def test_loads_are_the_engines(strategy):
    epochs, rows, units = 6, 8_000, 4
    engine = local_engine.run(strategy, WORLD, WORLD, units, epochs, rows)
    report = local_engine.simulated(strategy, WORLD, WORLD, units, epochs, rows)
    assert local_engine.difference(engine, report.work) < 0.05
    assert report.versions[-1] == (strategy == "fastjoin"), "the one that finds a fifth of the rows heavy for 4 units"
    assert [int(s.sum()) for s in report.stored] == [
        sum(sum(u.stored.values()) for u in loads.units) for loads in engine
    ]


def test_a_hot_key_is_no_match():
    hot = HotKey(0.3, None, Zipf(0.0, 20_000))
    fast, plain = (ek.simulate(s, hot, hot, units=16, epochs=12, rows=480_000) for s in ("fastjoin", "hash"))
    assert fast.heaviest_over_mean[-1] <= 1.5 and fast.li[-1] < 2.2
    assert plain.heaviest_over_mean[-1] > 10
    text = str(fast)
    assert "heaviest/mean" in text and "█" in text and "<svg" in fast._repr_html_()


def test_even_keys_are_left_alone():
    report = ek.simulate("fastjoin", Zipf(0.0, 20_000), Zipf(0.0, 20_000), units=16, epochs=30, rows=600_000)
    assert report.versions[-1] == 0 and sum(report.migrated) == 0, "noise is no reason to move"


def test_keys_are_cut_as_finely_as_tables_cut_them():
    """A hot key of both inputs has more of the work than of the rows; a unit with a part of it has to get some."""
    cut = grains((Zipf(1.0), Zipf(1.0)), units=1_000, parts=64, epochs=1, seed=0)
    assert cut.of_key[0] >= parts_for(1_000)


def test_sorted_arrival_is_recognised():
    keys = Sorted(Zipf(0.0, 2_000))
    report = ek.simulate("fastjoin", keys, keys, units=8, epochs=30, rows=300_000)
    assert any("in order" in text for _, text in report.notes)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_units_are_cleared_for_a_key_however_hot(share):
    hot = HotKey(share, None, Zipf(0.0, 20_000))
    for units in (16, 48):
        report = ek.simulate("fastjoin", hot, hot, units=units, epochs=6, rows=600_000, seed=4)
        assert max(report.li[1:]) < 2.2


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_key_that_turns_hot_takes_the_units_of_the_one_before(share):
    flips = HotKey(share, 10, Zipf(0.0, 20_000))
    hashed = ek.simulate("hash", flips, flips, units=16, epochs=40, rows=1_600_000, seed=3)
    for row_bytes, late, most, gain in ((100, 1, 0.5, 3), (32, 0, 1.2, 4)):  # small state is moved
        report = ek.simulate("fastjoin", flips, flips, units=16, epochs=40, rows=1_600_000, seed=3, row_bytes=row_bytes)
        assert max(e % 10 for e, li in enumerate(report.li) if li >= 2.2) <= late, "over with the epoch, or the next"
        assert report.moved_share < most and report.makespan < hashed.makespan / gain


@pytest.mark.parametrize("units", [16, 48])
def test_grids_are_laid_out_while_a_key_is_young(units):
    flips = HotKey(0.3, 20, Zipf(0.0, 20_000))
    report = ek.simulate("hypercube", flips, flips, units=units, epochs=60, rows=2_400_000, seed=4, optimum=True)
    assert max(s.max() / best for s, best in zip(report.stored, report.optimum, strict=True)) <= 2
    assert report.moved_share < 0.2


@pytest.mark.parametrize("swapped", [False, True])
def test_units_that_few_rows_probe_are_given_some(swapped):
    """A key that only one input has often: units that are left hardly any probes are uneven by chance alone."""
    ends = (Zipf(2.0), Zipf(0.0)) if swapped else (Zipf(0.0), Zipf(2.0))
    plain, report = (ek.simulate(s, *ends, units=48, epochs=30, rows=3_000_000, seed=3) for s in ("hash", "fastjoin"))
    assert np.mean(np.array(report.li[3:]) < 2.2) > 0.85
    assert report.makespan < plain.makespan / 30, "loads are even because all units work in vain"
    assert report.moved_share < 0.05


def test_moves_before_order_is_recognised_are_taken_back():
    keys = Sorted(Zipf(0.0))
    reports = {s: ek.simulate(s, keys, keys, units=48, epochs=40, rows=4_000_000) for s in ("fastjoin", "hash")}
    assert any("back to hashing" in why for _, why in reports["fastjoin"].notes)
    assert reports["fastjoin"].makespan <= reports["hash"].makespan * 1.02


def test_windows_forget():
    report = ek.simulate("hash", Zipf(0.0, 500), Zipf(0.0, 500), units=2, epochs=8, rows=16_000, window=3)
    assert [int(s.sum()) for s in report.stored] == [2000, 4000, *[6000] * 6]


@pytest.mark.parametrize(
    "dist", [Zipf(1.0, 50), HotKey(0.3, 2, Zipf(0.0, 50)), Wandering(1.0, 50), Sorted(Zipf(0.0, 50))]
)
def test_shares_sum_to_one(dist):
    for epoch in range(6):
        shares = dist.shares(epoch, 6)
        assert len(shares) == dist.keys and shares.sum() == pytest.approx(1) and (shares >= 0).all()


def test_distributions_as_text():
    assert parse("zipf:1.5@10") == Zipf(1.5, 10)
    assert parse("flips:0.2:7@99") == HotKey(0.2, 7, Zipf(0.0, 99))
    for text in ("zpif", "zipf:x", "hot@none", "zipf:nan", "flips:0.3:0", "hot:2"):
        with pytest.raises(EvenkeelError, match="no key distribution"):
            parse(text)
    with pytest.raises(EvenkeelError, match="nothing to show"):
        ek.simulate("hash", Zipf(), Zipf(), epochs=0)
    with pytest.raises(EvenkeelError, match="keeps no row"):
        ek.simulate("hash", Zipf(), Zipf(), window=0)
    with pytest.raises(EvenkeelError, match=r"no strategy 'auto'.\n\nHint: Choose one of hash"):
        ek.simulate("auto", Zipf(), Zipf())


def test_static_optimum_by_hand():
    """One key of 400 + 400 rows on 4 units is a grid of 2 x 2: 400 rows each; 40 light rows more on one of them."""
    assert static_heaviest(np.array([1, 2]), np.array([400.0, 20]), np.array([400.0, 20]), 4) == 440
