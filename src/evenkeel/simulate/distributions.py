"""Key distributions for simulations: how likely each key is, epoch by epoch, as small frozen values.

    dist.shares(epoch, epochs) -> the probability of key 0, 1, ... in that epoch; they sum to 1

Nothing here draws rows: the simulator draws how often each key comes, and `draw` gives rows for who needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenkeel.errors import InvalidSimulation
from evenkeel.types import Float64, Int64


class Distribution(Protocol):
    @property
    def keys(self) -> int: ...

    def shares(self, epoch: int, epochs: int) -> Float64: ...


@dataclass(frozen=True)
class Zipf:
    """Key k with probability proportional to (k + 1) ** -exponent; exponent 0 is uniform."""

    exponent: float = 0.0
    keys: int = 100_000

    def shares(self, epoch: int, epochs: int) -> Float64:
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum(), dtype=np.float64)


@dataclass(frozen=True)
class HotKey:
    """One key with a share of its own over a Zipf ground; with `every`, another key takes over every so many epochs."""

    share: float = 0.3
    every: int | None = None
    ground: Zipf = Zipf()

    @property
    def keys(self) -> int:
        return self.ground.keys

    def shares(self, epoch: int, epochs: int) -> Float64:
        out = self.ground.shares(epoch, epochs) * (1 - self.share)
        turn = 0 if self.every is None else epoch // self.every
        out[_scattered(turn, self.keys)] += self.share
        return out


@dataclass(frozen=True)
class Wandering:
    """Hot cells that wander: the ranks of a Zipf distribution shift over the keys, a few keys an epoch."""

    exponent: float = 1.0
    keys: int = 4_000
    speed: float = 0.25
    """Keys that the centre passes in an epoch."""

    def shares(self, epoch: int, epochs: int) -> Float64:
        at = epoch * self.speed
        distance = np.abs(np.arange(self.keys) - at % self.keys)
        distance = np.minimum(distance, self.keys - distance)
        weights = (1.0 + distance) ** -self.exponent
        return np.asarray(weights / weights.sum(), dtype=np.float64)


@dataclass(frozen=True)
class Sorted:
    """The keys of another distribution in order: each epoch has the next stretch of them, and no other."""

    of: Zipf = Zipf()

    @property
    def keys(self) -> int:
        return self.of.keys

    def shares(self, epoch: int, epochs: int) -> Float64:
        edges = np.concatenate([[0.0], np.cumsum(self.of.shares(epoch, epochs))])
        low, high = epoch / epochs, (epoch + 1) / epochs
        part = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
        return np.asarray(part / part.sum(), dtype=np.float64)


def draw(dist: Distribution, rows: int, epoch: int, epochs: int, seed: int) -> Int64:
    """Keys of one epoch's rows."""
    edges = np.cumsum(dist.shares(epoch, epochs))
    found = np.searchsorted(edges, np.random.default_rng([seed, epoch]).random(rows), side="right")
    return np.minimum(found, dist.keys - 1).astype(np.int64)


def parse(text: str) -> Distribution:
    """'zipf:1.0', 'uniform', 'hot:0.3', 'flips:0.3:20', 'wandering:1.0', 'sorted:0.5'; '@50000' sets the keys."""
    body, _, keys = text.partition("@")
    name, *rest = body.split(":")
    try:
        numbers = [float(n) for n in rest]
        count = int(keys) if keys else 4_000 if name == "wandering" else 100_000
    except ValueError as error:
        raise InvalidSimulation.distribution(text) from error
    ground = Zipf(numbers[0] if numbers and name in ("zipf", "sorted") else 0.0, count)
    share = numbers[0] if numbers else 0.3
    made: dict[str, Callable[[], Distribution]] = {
        "uniform": lambda: ground,
        "zipf": lambda: ground,
        "sorted": lambda: Sorted(ground),
        "hot": lambda: HotKey(share, None, ground),
        "flips": lambda: HotKey(share, int(numbers[1]) if len(numbers) > 1 else 20, ground),
        "wandering": lambda: Wandering(numbers[0] if numbers else 1.0, count),
    }
    turns = numbers[1] if name == "flips" and len(numbers) > 1 else 1.0
    shared = name not in ("hot", "flips") or 0 <= share <= 1
    if name not in made or count < 1 or not np.isfinite(numbers).all() or turns < 1 or not shared:
        raise InvalidSimulation.distribution(text)
    return made[name]()


def _scattered(turn: int, keys: int) -> int:
    """Some key, another one each turn."""
    return (turn * 7919 + 17) % keys
