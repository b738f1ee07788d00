"""Which keys to move from the heaviest unit to the lightest: GreedyFit, and SAFit beside it.

With R_i, R_j rows held and S_i, S_j rows probing, moving items of (r, s) each narrows the gap L_i - L_j by exactly

    sum of F,   F = (R_i + R_j) * s + (S_i + S_j) * r                                         equations (8) and (9)

Invariant: what is chosen never narrows the gap below zero, so the target does not become the heavier of the two.
Cost: K log K for GreedyFit, T / T_min temperatures of L steps for SAFit.
Source: FastJoin, sections III-C and IV-A, algorithms 1 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.types import Float64, Int64


@dataclass(frozen=True)
class Pair:
    """The heaviest unit and the lightest."""

    stored_i: float
    probing_i: float
    stored_j: float
    probing_j: float

    @property
    def gap(self) -> float:
        return self.stored_i * self.probing_i - self.stored_j * self.probing_j

    def benefit(self, stored: Float64, probing: Float64) -> Float64:
        """F of each item."""
        return (self.stored_i + self.stored_j) * probing + (self.probing_i + self.probing_j) * stored


def greedy_fit(pair: Pair, stored: Float64, probing: Float64, least: float) -> Int64:
    """Items in order of benefit for each row moved, as long as they fit; `least` is theta_gap."""
    benefit = pair.benefit(stored, probing)
    fits = np.flatnonzero((benefit < pair.gap) & (benefit >= least) & (benefit > 0))
    order = fits[np.argsort(-benefit[fits] / np.maximum(stored[fits], 1e-9), kind="stable")]
    gap, chosen = pair.gap, []
    for item in order.tolist():
        if gap > benefit[item]:
            gap -= benefit[item]
            chosen.append(item)
    return np.array(chosen, dtype=np.int64)


@dataclass(frozen=True)
class Annealing:
    """SAFit's four parameters; temperatures are in parts of the greatest benefit for a row."""

    start: float = 1.0
    steps: int = 50
    cooling: float = 0.8
    end: float = 0.01
    seed: int = 0


def sa_fit(pair: Pair, stored: Float64, probing: Float64, how: Annealing) -> Int64:
    """Simulated annealing over sets of items that fit; the value of a set is its benefit for each row moved."""
    benefit = pair.benefit(stored, probing)
    rng = np.random.default_rng(how.seed)
    n = len(benefit)
    if not n or pair.gap <= 0:
        return np.empty(0, dtype=np.int64)
    chosen = np.zeros(n, dtype=bool)
    total = rows = 0.0
    for item in np.flatnonzero(rng.random(n) < 0.5).tolist():
        if total + benefit[item] > pair.gap:
            break
        chosen[item], total, rows = True, total + benefit[item], rows + stored[item]
    scale = float((benefit / np.maximum(stored, 1.0)).max()) or 1.0

    def value(total: float, rows: float) -> float:
        return total / max(rows, 1.0) / scale

    best, best_value = chosen.copy(), value(total, rows)
    temperature = how.start
    while temperature > how.end:
        for item, luck in zip(rng.integers(0, n, how.steps).tolist(), rng.random(how.steps).tolist(), strict=True):
            sign = -1.0 if chosen[item] else 1.0
            new_total, new_rows = total + sign * benefit[item], rows + sign * stored[item]
            if new_total > pair.gap:
                continue
            better = value(new_total, new_rows) - value(total, rows)
            if better > 0 or luck < np.exp(better / temperature):
                chosen[item] = not chosen[item]
                total, rows = new_total, new_rows
                if value(total, rows) > best_value:
                    best, best_value = chosen.copy(), value(total, rows)
        temperature *= how.cooling
    return np.flatnonzero(best)
