"""Unit: samples scaled up, and the arithmetic of loads."""

from __future__ import annotations

import numpy as np
import pytest

from evenkeel import charts
from evenkeel.errors import InvalidWorkers, UnknownOption
from evenkeel.report import W_IN, W_OUT, LoadReport
from evenkeel.stats import JoinStats, SideStats
from evenkeel.stats.join_stats import unseen_included
from evenkeel.types import Exact, Inexact, parse_how, parse_scheme, parse_workers, preserved


def side(keys, counts, rows=None, fraction=1.0, nulls=0, distinct=None):
    counts = np.array(counts, dtype=np.int64)
    total = int(counts.sum()) + nulls if rows is None else rows
    return SideStats.from_sample(
        total, nulls, float(distinct or len(counts)), np.array(keys, dtype=np.int64), counts, fraction
    )


def test_a_side_read_whole_is_exact():
    s = side([1, 2], [30, 10], nulls=5)
    assert (s.rows, s.null_rows, s.complete) == (Exact(45), Exact(5), True)
    assert s.count_of(np.array([2, 1, 99])).tolist() == [10, 30, 0]


def test_a_sample_is_scaled_and_rare_keys_join_the_tail():
    s = side([1, 2, 3], [100, 20, 2], rows=200, fraction=0.1, distinct=50)
    assert isinstance(s.rows, Inexact) and s.row_count == 2000
    assert s.keys.tolist() == [1, 2] and s.counts.tolist() == [1000, 200]
    assert not s.complete
    assert 0 < s.count_of(np.array([3]))[0] <= 200
    assert s.tail_rows == pytest.approx(800)


def test_nothing_known_of_an_empty_side():
    s = side([], [])
    assert s.row_count == 0 and s.count_of(np.array([1])).tolist() == [0]
    assert JoinStats(s, s).tail(np.array([]), np.array([]))[2] == 0


def test_unseen_keys_are_counted_in():
    draws = np.random.default_rng(1).integers(0, 10_000, 8_000)
    assert unseen_included(len(np.unique(draws)), len(draws)) == pytest.approx(10_000, rel=0.05)
    assert unseen_included(0, 10) == 0


def test_report_arithmetic():
    r = LoadReport(np.array([10.0, 30.0]), np.array([0.0, 100.0]), 20.0)
    assert r.weights.tolist() == [10 * W_IN, 30 * W_IN + 100 * W_OUT]
    assert r.replication == 2.0
    assert r.skew_degree == pytest.approx(40 / 25)
    assert r.projected_makespan(1) == 50 and r.projected_makespan(2) == 40 and r.projected_makespan() == 40
    timed = LoadReport(r.rows_in, r.rows_out, 20.0, np.array([1.0, 2.0]))
    assert timed.projected_makespan(1) == 3.0 and timed.task_skew == pytest.approx(4 / 3)
    assert "longest task 2.00 s" in str(timed)


def test_an_idle_report_is_even():
    r = LoadReport(np.zeros(4), np.zeros(4), 0.0)
    assert r.skew_degree == 1.0 and r.replication == 1.0 and r.projected_makespan(3) == 0.0
    assert "<svg" in r._repr_html_() and str(r)


def test_bars_show_the_heaviest_region_even_when_many_are_drawn():
    loads = np.ones(1000)
    loads[123] = 50
    assert charts.bars(loads, height=2, width=40).splitlines()[0].count("█") == 1


def test_words():
    assert [parse_how(h) for h in ("outer", "FULL_OUTER", "leftouter", "semi", "left_anti", "anti")] == [
        "full", "full", "left", "left_semi", "left_anti", "left_anti",
    ]  # fmt: skip
    with pytest.raises(UnknownOption, match="inner, left"):
        parse_how("innner")
    with pytest.raises(UnknownOption, match="heavy_light"):
        parse_scheme("heavy-light")
    for bad in (0, -1, 1.5, "4", True):
        with pytest.raises(InvalidWorkers):
            parse_workers(bad)
    assert preserved("full") == {"left", "right"} and preserved("inner") == set()
