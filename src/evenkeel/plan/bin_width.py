"""How wide the bins of a band join are: a width for every region, from the keys themselves.

A row of the spread side is copied to width / w + 1 bins and costs `copy` for each; a row of the other side is checked
against everything in its bin and costs `check` for each. Narrow bins copy, wide bins check: the best width depends on
how dense the keys are, so a region of dense keys gets narrow bins and one of sparse keys gets wide ones.
Measured: the right width is four times faster than a wrong one, and where pairs outnumber rows by far it pays to ship
the copies and merge (docs/adr/0009 and 0015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.local import Bins
from evenkeel.schemes import Batch, Layout
from evenkeel.schemes.ranges import RangeLayout
from evenkeel.stats import RangeStats
from evenkeel.types import Float64, How, Side, other, preserved


@dataclass(frozen=True)
class Way:
    """How bins are joined, and what that costs in units of one shuffled row."""

    before: bool
    copy: float
    """A row in one more bin."""
    check: float
    """A pair that is checked."""


HASHED = Way(before=False, copy=0.5, check=0.03)
MERGED = Way(before=True, copy=0.8, check=0.015)
FACTORS: Float64 = np.exp2(np.arange(-2.0, 11.0))
"""Widths that are tried, in units of the band's width."""
PER_REGION = 100
"""Rows of each region that widths are tried on."""
MOST_BUILD_BYTES = 256 * 2**20
"""A region whose hashed side is larger is merged instead: hashing cannot spill."""


def choose_bins(stats: RangeStats, layout: Layout, how: How, row_bytes: dict[Side, float]) -> Bins:
    spread = _spread_side(stats, how)
    axis, partners = stats.of(other(spread)), stats.of(spread)
    effective = stats.hi - stats.lo + 2 * stats.slack * _typical(axis.x)
    span = _typical(axis.x - np.median(axis.x)) if len(axis) else 1.0
    base = effective if effective > 0 else max(span / max(len(axis), 1), 1e-9)
    tried = base * FACTORS
    picked = _sample(stats, layout, other(spread))
    assert layout.predicted is not None
    arrive = layout.predicted.rows_in
    both = max(1.0, axis.row_count + partners.row_count)
    copied = arrive * partners.row_count / both
    copies = copied[:, None] * (effective / tried + 1)
    checks = np.zeros((layout.workers, len(tried)))
    for region, at in enumerate(picked):
        if len(at):
            checks[region] = _checked(stats, spread, at, tried) * arrive[region] * axis.row_count / both
    known = np.array([len(at) > 0 for at in picked])
    largest = min(float(arrive.max(initial=0.0)), axis.row_count)
    hashed = row_bytes["right" if how in ("left_semi", "left_anti") else other(spread)]
    ways = (HASHED, MERGED) if largest * hashed <= MOST_BUILD_BYTES else (MERGED,)
    costs = [way.copy * copies + way.check * checks for way in ways]
    best = min(range(len(ways)), key=lambda i: float(costs[i][known].min(axis=1).sum()))
    at = np.where(known, np.argmin(costs[best], axis=1), int(np.argmin(np.abs(FACTORS - 1))))
    extra = tuple((copied * effective / tried[at]).tolist()) if ways[best].before else ()
    return Bins(tuple(tried[at].tolist()), spread, ways[best].before, extra)


def _spread_side(stats: RangeStats, how: How) -> Side:
    """Rather a side that need not be kept when nothing matches it; of two equals the smaller."""
    kept = preserved(how)
    smaller: Side = "left" if stats.left.row_count < stats.right.row_count else "right"
    if how in ("left_semi", "left_anti"):
        return "right"
    return other(smaller) if smaller in kept and other(smaller) not in kept else smaller


def _typical(x: Float64) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(np.quantile(finite, 0.9)) if len(finite) else 1.0


def _sample(stats: RangeStats, layout: Layout, side: Side) -> list[np.ndarray]:
    """Places on the axis of some rows of each region; of a layout that does not look at keys, one sample for all."""
    axis, p = stats.of(side), layout.workers
    if not len(axis):
        return [np.empty(0, dtype=np.int64)] * p
    at = np.linspace(0, len(axis) - 1, min(len(axis), PER_REGION * p)).astype(np.int64)
    if not isinstance(layout, RangeLayout):
        return [at[:: max(1, p // 8)]] * p
    hash_, x = axis.take(at)
    key = np.zeros(len(at), dtype=np.int64) if hash_ is None else hash_
    routed = layout.route(side, Batch(key, np.ones(len(at), dtype=bool), at, x))
    return [at[routed.row[routed.region == r]] for r in range(p)]


def _checked(stats: RangeStats, spread: Side, at: np.ndarray, tried: Float64) -> Float64:
    """How many rows of the spread side a row finds in its bin, for each width: the mean over rows at these places."""
    hash_, x = stats.of(other(spread)).take(at)
    partners = stats.of(spread)
    low, high = (stats.lo, stats.hi) if spread == "right" else (-stats.hi, -stats.lo)
    out = np.empty(len(tried))
    for i, w in enumerate(tried):
        start = np.floor((x + 0.5) / w) * w - 0.5
        first = partners.find(hash_, start - high, after=False)
        end = partners.find(hash_, start + w - low, after=False)
        out[i] = float(np.maximum(end - first, 0).mean()) * partners.weight
    return out
