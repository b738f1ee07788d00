"""Against text written down: what `explain` says of a plan. Run with UPDATE=1 to write it anew, then read the diff."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from evenkeel.conditions import Names, parse_on
from evenkeel.plan import Facts, TwoWay, explain, optimize
from evenkeel.stats import JoinStats, SideStats

HERE = Path(__file__).parent
NAMES = Names(("user_id", "t"), ("id", "until"))


def side(counts, nulls=0, fraction=1.0):
    counts = np.array(counts)
    keys = np.arange(1, len(counts) + 1) * 7919
    return SideStats.from_sample(int(counts.sum()) + nulls, nulls, float(len(counts)), keys, counts, fraction)


HOT = [5_000_000, 900_000] + [50] * 2000
EVEN = [1000] * 3000
CASES = {
    "skewed_full": (HOT, HOT, "full", "l.user_id = r.id AND l.t < r.until", "auto", {}),
    "skewed_left": (HOT, [1] * 2002, "left", "l.user_id = r.id", "auto", {"broadcast_limit": -1}),
    "small_right": ([100_000] + [10] * 500, [1] * 20, "inner", "l.user_id = r.id", "auto", {}),
    "even": (EVEN, EVEN, "inner", "l.user_id = r.id", "auto", {}),
    "asked_for_hash": (HOT, HOT, "inner", "l.user_id = r.id", "hash", {}),
    "theta": ([10] * 500, [1] * 900, "inner", "levenshtein(l.user_id, r.id) < 3", "auto", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_explain(case):
    left, right, how, on, scheme, facts = CASES[case]
    stats = JoinStats(side(left, nulls=10), side(right), 0.25, {7919: "42"})
    draft = TwoWay(parse_on(on, how, NAMES), how, 16, scheme, Facts(**facts), stats)
    said = explain(optimize(draft)) + "\n"
    written = HERE / f"{case}.txt"
    if os.environ.get("UPDATE"):
        written.write_text(said)
    assert said == written.read_text()
