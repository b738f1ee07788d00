"""What the loads of epochs say: how uneven they are, how fast rows arrive, and whether it is worth doing anything.

    load of a unit       (rows it holds + 1) * (rows that probe it + 1)         FastJoin, equation (1), never zero
    LI                   heaviest load / lightest load, so always finite and at least 1           equation (2)
    arrival rate         the mean over epochs, newer ones weighing more; a jump that noise does not explain is
                         believed at once
    decision             made `patience` epochs in a row, or beyond what chance can do
    gain                 pays if what the heaviest unit saves in `payback` epochs is more than what is moved costs
    temporal skew        the keys that probe now are keys that came only now: history says nothing about them

Everything here is a function of loads and of a small memory that is plain JSON. Cost: O(units) an epoch.
Source: FastJoin, sections III-B and III-E; the rest is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenkeel.types import Float64, Int64

if TYPE_CHECKING:  # strategies import this module
    from evenkeel.streaming.strategies.base import Loads, UnitLoad

DECAY = 0.5
"""How much of an arrival rate is the newest epoch's."""
SIGMAS = 5.0
"""A count this many standard deviations (of a Poisson number) off its rate is a change, not noise."""
FRESH = 0.5
"""The share of rows under the keys in use that are this epoch's own, from which arrival counts as temporal."""
WARM, ALL_FRESH = 4, 0.9
"""Epochs in which many keys are new, and the share from which that is more than being early."""
GAIN = 0.1
"""The least part of the heaviest load that a move has to save."""
MOVED_ROW = 0.25
"""What moving a stored row costs, in rows received: it is read, written once, and neither parsed nor probed."""


def load(stored: Float64, probing: Float64) -> Float64:
    return np.asarray((stored + 1.0) * (probing + 1.0), dtype=np.float64)


def imbalance(loads: Float64) -> float:
    """LI; loads are at least 1."""
    return float(loads.max() / loads.min()) if len(loads) else 1.0


@dataclass(frozen=True)
class SideLoads:
    """One side of the join: the rows of an input that units hold, and the rows of the others that probe them."""

    stored: Float64
    growth: Float64
    """Rows stored in the epoch."""
    probing: Float64

    @property
    def loads(self) -> Float64:
        return load(self.stored, self.probing)

    @property
    def li(self) -> float:
        return imbalance(self.loads)

    def only(self, units: Int64) -> SideLoads:
        """Of these units; in a join-biclique not every unit holds rows of every input."""
        return SideLoads(self.stored[units], self.growth[units], self.probing[units])

    @classmethod
    def of(cls, loads: Loads, input: str, units: int) -> SideLoads:
        stored, growth, probing = (np.zeros(units) for _ in range(3))
        for u in loads.units:
            if u.unit < units:
                stored[u.unit] = u.stored.get(input, 0)
                growth[u.unit] = u.stored_now.get(input, 0)
                probing[u.unit] = sum(n for i, n in u.probing.items() if i != input)
        return cls(stored, growth, probing)


def rates(before: Sequence[float] | None, now: Float64) -> Float64:
    """Arrival rates after an epoch."""
    if before is None or len(before) != len(now):
        return now.astype(np.float64)
    old = np.asarray(before, dtype=np.float64)
    changed = np.abs(now - old) > SIGMAS * np.sqrt(np.maximum(old, 1.0))
    return np.where(changed, now, DECAY * now + (1 - DECAY) * old)


def noise(rows: Float64, off: float = 3.0) -> float:
    """The LI that units of equal load would show by chance alone, so many standard deviations either way."""
    deviations = float(np.sqrt(max(1.0, rows.mean()))) if len(rows) else 1.0
    return (deviations + off) / max(deviations - off, 0.5)


def confirmed(li: float, threshold: float, chance: float, times: int, patience: int) -> bool:
    """Whether to act on an imbalance seen `times` epochs in a row; one that is more than chance, at once."""
    return li > threshold and (times >= patience or li > chance)


def least_gain(rows: float) -> float:
    """The part of the heaviest load that a move has to save: more than chance gave to a unit probed by so many rows."""
    return float(max(GAIN, 3.0 / np.sqrt(max(rows, 1.0))))


def pays(
    before: Float64, after: Float64, received: Float64, moved: Float64, payback: float, least: float = GAIN
) -> bool:
    """`moved` are rows that leave or reach each unit; the busiest one sets the pace of the move."""
    worst = int(np.argmax(before))
    saved = 1.0 - float(after.max()) / float(before[worst])
    return saved >= least and saved * float(received[worst]) * payback >= MOVED_ROW * float(moved.max(initial=0.0))


def fresh_share(units: Sequence[UnitLoad]) -> float:
    """Of the rows stored under the keys in use, the share that came in the epoch; each key weighs by its use."""
    now = total = 0.0
    for u in units:
        for loads in u.keys.values():
            for k in loads:
                if k.stored:
                    now += k.probing * k.stored_now / k.stored
                    total += k.probing
    return now / total if total else 0.0


def temporal(memory: Mapping[str, int], loads: Loads, patience: int) -> tuple[int, bool]:
    """How many epochs in a row were fresh, and whether that makes it temporal skew, such as sorted arrival."""
    fresh = loads.epoch > 0 and fresh_share(loads.units) > (FRESH if loads.epoch >= WARM else ALL_FRESH)
    times = int(memory.get("fresh", 0)) + 1 if fresh else 0
    return times, times >= max(2, patience)


class SubWindows:
    """Rows of a window, by sub-window: a vector of fixed length whose head falls out as a new epoch comes in.

    Source: FastJoin, section III-E. The engine's segments are such a vector already; this is for who has none.
    """

    def __init__(self, length: int | None, width: int) -> None:
        self.length, self.total = length, np.zeros(width, dtype=np.int64)
        self._parts: deque[Int64] = deque()

    def push(self, rows: Int64) -> None:
        self.total += rows
        if self.length is not None:
            self._parts.append(rows)
            if len(self._parts) > self.length:
                self.total -= self._parts.popleft()
