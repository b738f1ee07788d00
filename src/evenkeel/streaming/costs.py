"""What join-biclique and join-matrix cost, as formulas: memory, gain of scaling, traffic.

m and n are the units (partitions) of the left and of the right input, d and e their subgroups; sizes are in bytes a
row, rates in rows a second. Source: BiStream, section 4, formulas (1) to (6).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Streams:
    left_rows: float
    right_rows: float
    left_size: float = 1.0
    right_size: float = 1.0
    left_rate: float = 0.0
    right_rate: float = 0.0


def biclique_memory(s: Streams) -> float:
    """(1): every row is stored once."""
    return s.left_size * s.left_rows + s.right_size * s.right_rows


def matrix_memory(s: Streams, m: int, n: int) -> float:
    """(2): a left row is stored in n cells, a right row in m."""
    return s.left_size * n * s.left_rows + s.right_size * m * s.right_rows


def matrix_gain_left(s: Streams, n: int, capacity: float) -> float:
    """(3): the share of a new row of cells that is left for left rows; in the biclique it is 1."""
    return 1 - s.right_size / capacity * s.right_rows / n


def matrix_gain_right(s: Streams, m: int, capacity: float) -> float:
    """(4): the same for a new column of cells."""
    return 1 - s.left_size / capacity * s.left_rows / m


def biclique_traffic(s: Streams, m: int, n: int, d: int, e: int) -> float:
    """(5): bytes a second between router and units; every row is sent to be stored, and to a subgroup to probe."""
    return (n / e + 1) * s.left_size * s.left_rate + (m / d + 1) * s.right_size * s.right_rate


def matrix_traffic(s: Streams, m: int, n: int) -> float:
    """(6): every row is sent along its row or column of cells."""
    return n * s.left_size * s.left_rate + m * s.right_size * s.right_rate
