"""Key distributions for simulations: how likely each key is, epoch by epoch, as small frozen values.

    dist.shares(epoch, epochs) -> the probability of key 0, 1, ... in that epoch; they sum to 1

Nothing here draws rows: the simulator draws how often each key comes, and `draw` gives rows for who needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

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
    ground: Zipf = Zipf()  # noqa: RUF009 a frozen value

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

    of: Zipf = Zipf()  # noqa: RUF009 a frozen value

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
    from evenkeel.errors import UnknownOption

    name, _, rest = text.partition("@")[0].partition(":")
    numbers = [float(n) for n in rest.split(":") if n]
    made: Distribution
    if name in ("zipf", "uniform"):
        made = Zipf(*numbers[:1])
    elif name == "hot":
        made = HotKey(*numbers[:1])
    elif name == "flips":
        share, every = (numbers + [0.3, 20.0][len(numbers) :])[:2]
        made = HotKey(share, int(every))
    elif name == "wandering":
        made = Wandering(*numbers[:1])
    elif name == "sorted":
        made = Sorted(Zipf(*numbers[:1]))
    else:
        raise UnknownOption.of("distribution", name, ["uniform", "zipf", "hot", "flips", "wandering", "sorted"])
    if "@" in text:
        keys = int(text.partition("@")[2])
        if isinstance(made, HotKey):
            return replace(made, ground=replace(made.ground, keys=keys))
        if isinstance(made, Sorted):
            return replace(made, of=replace(made.of, keys=keys))
        assert isinstance(made, Zipf | Wandering)
        return replace(made, keys=keys)
    return made


def _scattered(turn: int, keys: int) -> int:
    """Some key, another one each turn."""
    return (turn * 7919 + 17) % keys
