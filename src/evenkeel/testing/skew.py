"""Skewed data on demand: seeded, so that the same call gives the same rows everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenkeel.types import Int64


def zipf_keys(rows: int, keys: int, exponent: float, seed: int) -> Int64:
    """Keys 0..keys-1, key k with probability proportional to (k + 1) ** -exponent."""
    share = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    edges = np.cumsum(share / share.sum())
    draws = np.random.default_rng(seed).random(rows)
    return np.minimum(np.searchsorted(edges, draws, side="right"), keys - 1).astype(np.int64)


def zipf_table(rows: int, keys: int, exponent: float, seed: int) -> pa.Table:
    """A key and a payload a row, as wide as an order or a click: a number, a price, a time and a short text."""
    rng = np.random.default_rng(seed + 1)
    return pa.table(
        {
            "k": zipf_keys(rows, keys, exponent, seed),
            "id": np.arange(rows, dtype=np.int64),
            "amount": np.round(rng.gamma(2.0, 20.0, rows), 2),
            "ts": rng.integers(1_700_000_000_000_000, 1_700_086_400_000_000, rows).astype("datetime64[us]"),
            "tag": pa.array([f"u{n:06x}" for n in rng.integers(0, 2**24, rows)]),
        }
    )


def ride_hailing(orders: int, positions: int, seed: int, cells: int = 4000) -> tuple[pa.Table, pa.Table]:
    """Orders and taxi positions in city cells; a few cells hold most of both.

    Orders crowd where people are and taxis where orders are, so the hot cells are nearly the same ones.
    """
    rng = np.random.default_rng(seed)
    names = np.array([f"cell-{n:04d}" for n in rng.permutation(cells)])
    order_cell = zipf_keys(orders, cells, 1.05, seed + 1)
    taxi_cell = np.where(
        rng.random(positions) < 0.85,
        zipf_keys(positions, cells, 0.95, seed + 2),
        rng.integers(0, cells, positions),
    )
    return (
        pa.table(
            {
                "cell": names[order_cell],
                "order_id": np.arange(orders, dtype=np.int64),
                "wanted_at": rng.integers(0, 3600, orders),
            }
        ),
        pa.table(
            {
                "cell": names[taxi_cell],
                "taxi_id": rng.integers(0, 20_000, positions),
                "seen_at": rng.integers(0, 3600, positions),
            }
        ),
    )
