"""The hash of whole numbers: one to one, and keys that follow each other are shared out evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenkeel as ek
from evenkeel.errors import StateMismatch
from evenkeel.hashing import rehash
from evenkeel.simulate import Sorted, Zipf
from evenkeel.streaming.key_hash import in_turn
from evenkeel.streaming.spec import check_same
from evenkeel.streaming.structured.lookup import slots_of

LONG = st.integers(-(2**63), 2**63 - 1)


def back(hashes: np.ndarray) -> np.ndarray:
    """The keys of the hashes: there is a way back, so no two keys share one."""
    b, w = (hashes >> 35) & (2**29 - 1), hashes & (2**35 - 1)
    w ^= rehash(b) & (2**35 - 1)
    a, y = w >> 6, w & 63
    return (a << 35) | ((b ^ (rehash(a) & (2**29 - 1))) << 6) | (y ^ y >> 4)


@given(st.lists(LONG, min_size=1, max_size=50))
def test_one_to_one(keys):
    keys = np.array(keys, dtype=np.int64)
    assert (back(in_turn(keys)) == keys).all()


@given(LONG.filter(lambda k: k < 2**63 - 64), st.integers(1, 200))
def test_a_block_is_shared_out_evenly(key, units):
    block = (key & ~63) + np.arange(64, dtype=np.int64)
    rows = np.bincount(np.mod(in_turn(block), units), minlength=units)
    assert rows.max() - rows.min() <= 1


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8, 10, 16, 21, 32, 34, 48, 64, 100, 128, 1_000, 4_096, 86_400, 2**35])
def test_keys_in_steps_are_no_worse_than_random(step):
    """Over many numbers of units and beginnings, against Spark's hash of the same keys."""
    rng = np.random.default_rng(step)
    most: dict[str, list[float]] = {"turn": [], "spark": []}
    for units in (3, 7, 10, 16, 24, 48, 64, 100, 128, 1_000):
        for start in rng.integers(0, 2**40, 8):
            keys = start + step * np.arange(units * 50, dtype=np.int64)
            for name, hashed in (("turn", in_turn(keys)), ("spark", rehash(keys))):
                most[name].append(np.bincount(np.mod(hashed, units), minlength=units).max() / 50)
    assert np.mean(most["turn"]) < 1.05 * np.mean(most["spark"])
    if step == 1:
        assert np.mean(most["turn"]) < 1.12


@pytest.mark.parametrize("step", [1, 64, 4_096, 2**16, 2**20, 2**35])
def test_keys_placed_one_by_one_stay_a_small_table(step):
    for count in (20, 1_000):
        keys = in_turn(step * np.arange(count, dtype=np.int64)).tolist()
        assert len(slots_of(keys)[1]) <= max(64, 8 * count)


def test_new_keys_in_order_load_units_alike():
    """A table made before the keys are known cannot even them out; the hash can."""
    keys = Sorted(Zipf(0.0))
    report = ek.simulate("fastjoin", keys, keys, units=48, epochs=40, rows=4_000_000)
    assert np.mean(np.array(report.li) < 2.2) >= 0.9


def test_a_state_with_another_hash_is_refused():
    check_same({"condition": "a"}, {"condition": "a", "hashing": "xxhash64"})  # from before it was written down
    with pytest.raises(StateMismatch, match="hash of keys"):
        check_same({"condition": "a"}, {"condition": "a", "hashing": "whole numbers in turn"})
