"""Rows that stand for many: what a simulation counts instead of rows.

    key 17, share 0.001   one grain                  every row of it has one content hash
    key 3,  share 0.3     a power of two of grains   their content hashes end in 0, 1, 2, ...: cut evenly at any place

A grain is a key hash, a content hash and a position; an epoch is a count for each grain and input. Placing a grain
places all its rows, so a table is asked once for each grain and not once for each row.
Cost: keys + grains of heavy keys; no matter how many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.simulate.distributions import Distribution
from evenkeel.streaming.key_hash import in_turn
from evenkeel.types import Float64, Int64

FINE = 8
"""Grains are cut finer than this part of a unit's fair share, of rows and of work."""
HOT = 1024
"""Grains of a key hotter than a unit, at the least: tables cut it into parts, or spread it by a hash."""
LOOKS = 16
"""Epochs at which shares are looked at to find the heavy keys."""


@dataclass(frozen=True, eq=False)
class Grains:
    key: Int64
    """Key number, as in the distributions."""
    hash: Int64
    row: Int64
    position: Float64
    of_key: Int64
    """How many grains the key has."""

    def __len__(self) -> int:
        return len(self.key)

    def spread(self, shares: Float64) -> Float64:
        """Shares of keys as shares of grains."""
        return shares[self.key] / self.of_key


def grains(dists: tuple[Distribution, ...], units: int, parts: int, epochs: int, seed: int) -> Grains:
    keys = max(d.keys for d in dists)
    most = np.zeros(keys)
    for d in dists:
        for e in {int(x) for x in np.linspace(0, epochs - 1, min(epochs, LOOKS))}:
            most[: d.keys] = np.maximum(most[: d.keys], d.shares(e, epochs))
    work = most**2 / (most**2).sum()  # of two inputs alike: a unit's fair share of it may be a small one of the rows
    wanted = np.maximum(1, np.maximum(most, work) * FINE * units)
    least = np.where(most * units > 1, HOT, parts)
    count = np.where(wanted > 1, np.maximum(2 ** np.ceil(np.log2(wanted)), least), 1).astype(np.int64)
    key = np.repeat(np.arange(keys), count)
    number = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
    of_key = count[key]
    random = np.random.default_rng(seed).integers(0, 2**62, len(key))
    row = np.where(of_key > 1, random - random % of_key + number, random)
    return Grains(key, in_turn(key), row, key.astype(np.float64), of_key)


def counts(shares: Float64, rows: int, rng: np.random.Generator) -> Int64:
    """How often each grain comes among so many rows."""
    return rng.multinomial(rows, shares / shares.sum())
