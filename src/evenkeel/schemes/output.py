"""How many rows a key gives, by join type, when l rows of the left meet r rows of the right."""

from __future__ import annotations

import numpy as np

from evenkeel.types import Float64, How


def output_rows(how: How, left: Float64, right: Float64) -> Float64:
    pairs = left * right
    if how == "left_semi":
        return np.where(right >= 0.5, left, 0.0)
    if how == "left_anti":
        return np.where(right >= 0.5, 0.0, left)
    if how in ("left", "full"):
        pairs = np.where(right >= 0.5, pairs, left)
    if how in ("right", "full"):
        pairs = np.where(left >= 0.5, pairs, right)
    return pairs
