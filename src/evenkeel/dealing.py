"""Rows are dealt to slots by their place on a circle, so that no pattern in which they stand piles them up.

    place = n * 0.618.. + m * 0.414.. mod 1       the n-th row, or run of rows, of partition m; n, m from 0
    slot  = floor(place * slots)

Neighbours come as far apart as they can, and so do rows at any regular distance d: they go round the circle in 2.24 d
rows at the most, so a slot has its part of them to within a few d rows. A modulus would send every tenth row of a table
(a key of `id % 10`) to half of 6 slots. Source: the three-distance theorem; ADR 57 has the measurements.
Places are whole numbers of 32 bits: the lowest of a row's number; what is above them only tells rows apart.
"""

from __future__ import annotations

import numpy as np

from evenkeel.types import Int64

PLACE_BITS = 32
STEP = 2654435769
"""The golden section of 2 ** 32: of all steps the one whose multiples come least near to one another."""
PARTITION_STEP = 1779033703
"""The root of 2, less 1."""
LONGEST_RUN = 6
"""The logarithm of how many neighbouring rows may go to one slot, at the most."""
_PARTITION_BITS = 33
"""`monotonically_increasing_id` counts a partition's rows below its number."""
_BLOCKS = 2 ** (_PARTITION_BITS - LONGEST_RUN) - 1
_PARTITIONS = 2**30 - 1
"""Runs and partitions up to this are told apart: their products fit a BIGINT, and the sum of these."""


def number_sql(row: str, run: int = 0) -> str:
    """The number of a row that Spark's `monotonically_increasing_id` counts; runs of 2 ** run rows share a place."""
    block, partition = f"shiftright({row}, {run})" if run else row, f"shiftright({row}, {_PARTITION_BITS})"
    return f"(({block} & {_BLOCKS}L) * {STEP}L + ({partition} & {_PARTITIONS}L) * {PARTITION_STEP}L)"


def number(n: Int64, partition: int = 0, run: int = 0) -> Int64:
    """The same in NumPy, for the rows `n` of a partition."""
    found: Int64 = (n >> run & _BLOCKS) * STEP + (partition & _PARTITIONS) * PARTITION_STEP
    return found


def slot_sql(row: str, slots: str | int) -> str:
    """The slot of a row by its number: an INT, NULL just where one of both is."""
    return f"cast(shiftright(({row} & {2**PLACE_BITS - 1}L) * {slots}, {PLACE_BITS}) as int)"


def slot(row: Int64, slots: int | Int64) -> Int64:
    found: Int64 = (row & (2**PLACE_BITS - 1)) * slots >> PLACE_BITS
    return found


def longest_run(rows: float) -> int:
    """The logarithm of how many rows are dealt together where a slot may have so many too much or too little."""
    return min(LONGEST_RUN, int(np.log2(max(1.0, rows))))
