"""Property, against counting: rows are dealt evenly to slots whatever regular pattern they stand in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel import dealing


def dealt(numbers, slots):
    return np.bincount(dealing.slot(numbers, slots), minlength=slots)


@given(
    first=st.integers(0, 2**26), apart=st.integers(1, 64), slots=st.integers(1, 100), partition=st.integers(0, 999)
)
def test_rows_at_a_regular_distance_are_dealt_evenly(first, apart, slots, partition):
    """With a modulus, rows 10 apart would use one or three of 6 slots."""
    n = first + apart * np.arange(20_000, dtype=np.int64)
    counts = dealt(dealing.number(n, partition), slots)
    # As even as d rounds of the circle leave it: exact for neighbours, a few hundred rows for the worst distances.
    assert np.abs(counts - 20_000 / slots).max() <= 3 + 2.5 * apart


@pytest.mark.parametrize("slots", [2, 3, 7, 16, 64])
@pytest.mark.parametrize("rows", [1, 2, 10, 64])
def test_a_few_rows_of_each_of_many_partitions(rows, slots):
    numbers = np.concatenate([dealing.number(np.arange(rows), p) for p in range(4096)])
    counts = dealt(numbers, slots)
    assert counts.max() <= 1.05 * counts.mean() + 3


@pytest.mark.parametrize("run", [0, 1, 4, 6])
def test_runs_stay_together_and_are_dealt_evenly(run):
    slots = dealing.slot(dealing.number(np.arange(64_000), 3, run), 7)
    assert (slots.reshape(-1, 2**run) == slots[:: 2**run, None]).all()
    counts = np.bincount(slots, minlength=7)
    assert np.abs(counts - 64_000 / 7).max() <= 3 * 2**run


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**16))
def test_any_number_has_a_slot(number, slots):
    assert 0 <= dealing.slot(np.array([number]), slots)[0] < slots


@pytest.mark.parametrize(("rows", "run"), [(0.0, 0), (1.9, 0), (2.0, 1), (63.0, 5), (64.0, 6), (1e9, 6)])
def test_runs_are_as_long_as_they_may_be(rows, run):
    assert dealing.longest_run(rows) == run
