"""The static HyperCube with all counts known: what a streaming one is measured against.

Cost: O(heavy keys * units). Source: Streaming HyperCube, section 2.2; sides are whole numbers, tasks packed heaviest
first on the unit with the fewest rows.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from evenkeel.types import Float64, Int64


def static_heaviest(key: Int64, left: Float64, right: Float64, units: int) -> float:
    """Rows in the heaviest unit; `key` are hashes, `left` and `right` rows of each key."""
    total = left + right
    heavy = total > total.sum() / units
    loads: Float64 = np.bincount(np.mod(key[~heavy], units), total[~heavy], minlength=units).astype(np.float64)
    output = float((left[heavy] * right[heavy]).sum())
    tasks: list[tuple[float, int]] = []
    for a, b in zip(left[heavy].tolist(), right[heavy].tolist(), strict=True):
        share = max(1, min(units, round(a * b / output * units))) if output else 1
        load, count = min((a / r + b / (share // r), r * (share // r)) for r in _rows(a, b, share))
        tasks.append((load, count))
    for load, count in sorted(tasks, reverse=True):
        lightest = np.argpartition(loads, count - 1)[:count]
        loads[lightest] += load
    return float(loads.max())


def _rows(left: float, right: float, share: int) -> range:
    """Numbers of rows worth trying for a grid of so many tasks."""
    near = sqrt(share * max(left, 1e-9) / max(right, 1e-9))
    return range(max(1, min(share, int(near)) // 2), min(share, int(near) * 2 + 1) + 1)
