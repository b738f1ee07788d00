"""`ek.simulate`: a strategy's own objects, run on key distributions: a thousand units in a minute, no Spark.

    every epoch:   counts of grains -> placed by the table in force -> loads of units -> strategy.adapt
    a new table:   in force for the next epoch if few bytes move, else after as many epochs as the engine takes

Loads are those the engine reports: rows stored, received, probing, the heaviest keys of each unit, samples.
Cost: O(placements of grains) an epoch, and a sort of them for each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from evenkeel.errors import InvalidSimulation
from evenkeel.simulate.distributions import Distribution
from evenkeel.simulate.optimum import static_heaviest
from evenkeel.simulate.report import SimulationReport
from evenkeel.simulate.rows import Grains, counts, grains
from evenkeel.streaming.choice import parse
from evenkeel.streaming.driver import MOVED
from evenkeel.streaming.key_hash import in_turn
from evenkeel.streaming.monitor import SubWindows
from evenkeel.streaming.spec import INPUTS
from evenkeel.streaming.strategies import strategy_named
from evenkeel.streaming.strategies.base import (
    Adaptive,
    KeyLoad,
    Loads,
    RoutingTable,
    Strategy,
    Tells,
    UnitLoad,
    Watch,
)
from evenkeel.types import Float64, Int64

PARTS = 64
"""A heavy key has at least so many grains."""
ROW_BYTES = 32
"""Of a stored row on disk, if nobody says otherwise: two hashes and two or three columns."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a table places the grains of one input."""

    grain: Int64
    unit: Int64
    store: Int64
    probe: Int64

    @classmethod
    def of(cls, table: RoutingTable, input: str, rows: Grains) -> Placed:
        p = table.place(input, rows.hash, rows.row, rows.position)
        return cls(p.row, p.unit, np.flatnonzero(p.store), np.flatnonzero(p.probe))

    def sums(self, which: Int64 | slice, weights: Int64, units: int) -> Float64:
        return _count(self.unit[which], weights[self.grain[which]], units)


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The (unit, key) pairs of a table's placements, so that counts by unit and key are one `bincount`."""

    unit: Int64
    key: Int64
    stored: Mapping[str, Int64]
    probing: Mapping[str, Int64]

    @classmethod
    def of(cls, placed: Mapping[str, Placed], rows: Grains) -> KeyIndex:
        base = int(rows.key.max()) + 1
        pairs = {i: p.unit * base + rows.key[p.grain] for i, p in placed.items()}
        every = np.unique(np.concatenate(list(pairs.values())))
        at = {i: np.searchsorted(every, p) for i, p in pairs.items()}
        return cls(
            every // base, every % base,
            {i: at[i][p.store] for i, p in placed.items()}, {i: at[i][p.probe] for i, p in placed.items()},
        )  # fmt: skip


class Simulation:
    """A strategy on two distributions; `step` runs one epoch."""

    def __init__(
        self, strategy: Strategy, table: RoutingTable, dists: Mapping[str, Distribution], epochs: int,
        rows: Mapping[str, int], window: int | None = None, seed: int = 0, row_bytes: float = ROW_BYTES,
    ) -> None:  # fmt: skip
        self.strategy, self.table, self.dists, self.row_bytes = strategy, table, dists, row_bytes
        self.epochs, self.rows, self.epoch = epochs, rows, 0
        self.grains = grains(tuple(dists.values()), table.units, PARTS, epochs, seed)
        self.rng = np.random.default_rng(seed + 1)
        self.state = {i: SubWindows(window, len(self.grains)) for i in INPUTS}
        self.memory: Mapping[str, Any] = {}
        self.waiting: tuple[int, RoutingTable] | None = None
        self.moved = 0
        self.notes: list[tuple[int, str]] = []
        self._use(table)

    def optimum(self) -> float:
        """Rows in the heaviest unit of the static HyperCube that knows all rows so far."""
        sums = [_count(self.grains.key, self.state[i].total) for i in INPUTS]
        keys = np.arange(len(sums[0]), dtype=np.int64)
        return static_heaviest(in_turn(keys), sums[0], sums[1], self.table.units)

    def held(self) -> Float64:
        """Rows of each unit as of now, a table that has just come into force included."""
        parts = (p.sums(p.store, self.state[i].total, self.table.units) for i, p in self.placed.items())
        return np.asarray(sum(parts), dtype=np.float64)

    def _use(self, table: RoutingTable) -> None:
        self.table = table
        self.placed = {i: Placed.of(table, i, self.grains) for i in INPUTS}
        self._index: KeyIndex | None = None

    def arrivals(self, input: str) -> Int64:
        """How many rows of each grain come in this epoch."""
        shares = _padded(self.dists[input].shares(self.epoch, self.epochs), self.grains)
        return counts(self.grains.spread(shares), self.rows[input], self.rng)

    def step(self) -> Loads:
        now = {i: self.arrivals(i) for i in INPUTS}
        for i in INPUTS:
            self.state[i].push(now[i])
        watch = self._watch()
        loads = Loads(self.epoch, self._loads(now, watch), self._limit)
        self._adapt(loads)
        self.epoch += 1
        return loads

    def _watch(self) -> Watch:
        adapts = _adaptive(self.strategy)
        return adapts.watch(self.table, self.memory) if adapts is not None else Watch()

    def _adapt(self, loads: Loads) -> None:
        adapts = _adaptive(self.strategy)
        if adapts is None:
            return
        if self.waiting is not None:
            left, table = self.waiting
            self.waiting = (left - 1, table) if left > 1 else None
            if self.waiting is None:
                self._bring(table)
            return
        step = adapts.adapt(self.table, loads, self.memory)
        self.memory = step.memory
        if step.reason:
            self.notes.append((loads.epoch, step.reason))
        if step.table is not None and not step.moves:
            self._use(step.table)
        elif step.table is not None:
            epochs = self._epochs(step.table)
            self.waiting = (epochs, step.table) if epochs else None
            if self.waiting is None:
                self._bring(step.table)

    def _bring(self, table: RoutingTable) -> None:
        self.moved += self._moves(table)
        self._use(table)

    def _epochs(self, table: RoutingTable) -> int:
        """How many epochs it takes to bring a table into force: 0 if the one that asked for it can."""
        touched = self.table.touched(table) if isinstance(self.table, Tells) else None
        looked = 0.0
        for i in INPUTS:
            p = self.placed[i]
            held = p.sums(p.store, self.state[i].total, self.table.units)
            looked += float(held.sum() if touched is None else held[list(touched[i])].sum())
        epochs = ceil(looked * self.row_bytes / self._limit)
        return epochs if epochs > 1 else 0

    @property
    def _limit(self) -> float:
        return max(MOVED, 2 * self.row_bytes * sum(self.rows.values()))

    def _moves(self, table: RoutingTable) -> int:
        """Rows sent to units that did not hold them."""
        units = max(table.units, self.table.units)
        total = 0
        for i in INPUTS:
            new = Placed.of(table, i, self.grains)
            old = self.placed[i]
            before = old.grain[old.store] * units + old.unit[old.store]
            after = new.grain[new.store] * units + new.unit[new.store]
            gained = np.setdiff1d(after, before, assume_unique=True)
            total += int(self.state[i].total[gained // units].sum())
        return total

    def _loads(self, now: Mapping[str, Int64], watch: Watch) -> list[UnitLoad]:
        n = self.table.units
        stored, fresh, received, probing = {}, {}, {}, {}
        for i in INPUTS:
            p = self.placed[i]
            stored[i] = p.sums(p.store, self.state[i].total, n)
            fresh[i] = p.sums(p.store, now[i], n)
            received[i] = p.sums(slice(None), now[i], n)
            probing[i] = p.sums(p.probe, now[i], n)
        keys = self._keys(now, watch, n) if watch.keys else [{} for _ in range(n)]
        samples = self._samples(now, watch.rate, n) if watch.rate else [{} for _ in range(n)]
        return [
            UnitLoad(
                u, _at(stored, u), _at(received, u), _at(probing, u), keys=keys[u], sample=samples[u],
                stored_now=_at(fresh, u), bytes={i: int(self.row_bytes * s[u]) for i, s in stored.items()},
            )
            for u in range(n)
        ]  # fmt: skip

    def _keys(self, now: Mapping[str, Int64], watch: Watch, n: int) -> list[Mapping[str, Sequence[KeyLoad]]]:
        """Of each unit the heaviest keys, by their shares of its stored and of its probing rows."""
        if self._index is None:
            self._index = KeyIndex.of(self.placed, self.grains)
        at, size = self._index, len(self._index.unit)
        stored, fresh, probing = {}, {}, {}
        for i in INPUTS:
            p = self.placed[i]
            stored[i] = np.bincount(at.stored[i], self.state[i].total[p.grain[p.store]], minlength=size)
            fresh[i] = np.bincount(at.stored[i], now[i][p.grain[p.store]], minlength=size)
            probing[i] = np.bincount(at.probing[i], now[i][p.grain[p.probe]], minlength=size)
        rank = np.zeros(size)
        for part in (sum(stored.values()), sum(probing.values())):
            whole = np.bincount(at.unit, part, minlength=n)
            rank += part / np.maximum(whole[at.unit], 1)
        order = np.lexsort((-rank, at.unit))
        first = np.searchsorted(at.unit[order], np.arange(n + 1))
        hashes = self.grains.hash[np.searchsorted(self.grains.key, at.key)]
        out: list[Mapping[str, Sequence[KeyLoad]]] = []
        for u in range(n):
            if watch.units is not None and u not in watch.units:
                out.append({})
                continue
            top = order[first[u] : min(first[u + 1], first[u] + watch.keys)]
            out.append(
                {i: [KeyLoad(int(hashes[k]), int(stored[i][k]), int(fresh[i][k]), int(probing[i][k])) for k in top]
                 for i in INPUTS}
            )  # fmt: skip
        return out

    def _samples(
        self, now: Mapping[str, Int64], rate: float, n: int
    ) -> list[Mapping[str, Sequence[tuple[float, int]]]]:
        """Bernoulli samples of the epoch's rows; where a unit's come from is of no account."""
        first: dict[str, list[tuple[float, int]]] = {}
        for i in INPUTS:
            drawn = self.rng.binomial(now[i], min(1.0, rate))
            position = np.repeat(self.grains.position, drawn)
            hashes = (self.rng.random(len(position)) * rate * 2.0**64).astype(np.uint64).view(np.int64)
            first[i] = list(zip(position.tolist(), hashes.tolist(), strict=True))
        return [first, *({} for _ in range(n - 1))]


def _count(at: Int64, rows: Int64, size: int = 0) -> Float64:
    return np.asarray(np.bincount(at, rows, minlength=size), dtype=np.float64)


def _at(sums: Mapping[str, Float64], unit: int) -> dict[str, int]:
    return {i: int(s[unit]) for i, s in sums.items()}


def _padded(shares: Float64, rows: Grains) -> Float64:
    keys = int(rows.key[-1]) + 1
    return shares if len(shares) == keys else np.concatenate([shares, np.zeros(keys - len(shares))])


def _adaptive(strategy: Strategy) -> Adaptive | None:
    return strategy if hasattr(strategy, "adapt") else None  # type: ignore[return-value]


def simulate(
    strategy: str,
    left: Distribution,
    right: Distribution,
    *,
    units: int = 16,
    epochs: int = 60,
    rows: int | tuple[int, int] = 1_000_000,
    window: int | None = None,
    options: Mapping[str, float] | None = None,
    seed: int = 0,
    optimum: bool = False,
    row_bytes: float = ROW_BYTES,
) -> SimulationReport:
    """Run a strategy on two key distributions.

    `rows` are those of both inputs over all epochs, or of each of them; `window` is how many epochs a row is
    kept, None for all. `row_bytes` is what a stored row takes on disk: how long state takes to move depends on it.
    With `optimum`, each epoch is compared with the static HyperCube that knows everything.
    """
    both = rows if isinstance(rows, tuple) else (rows // 2, rows // 2)
    if units < 1 or epochs < 1 or min(both) < 1:
        raise InvalidSimulation.of(units, epochs, sum(both))
    if window is not None and window < 1:
        raise InvalidSimulation.window(window)
    name, given = parse(strategy)
    made = strategy_named(name)
    table = made.start(INPUTS, units, given | dict(options or {}))
    each = {i: max(1, n // epochs) for i, n in zip(INPUTS, both, strict=True)}
    run = Simulation(made, table, {"left": left, "right": right}, epochs, each, window, seed, row_bytes)
    return play(run, SimulationReport(strategy, units, sum(each.values()) * epochs), optimum)


def play(run: Simulation, report: SimulationReport, optimum: bool = False) -> SimulationReport:
    """Run all epochs, and write them down."""
    holders = {i: np.unique(p.unit[p.store]) for i, p in run.placed.items()}
    for _ in range(run.epochs):
        version = run.table.version
        moved = run.moved
        loads = run.step()
        report.add(loads, version, run.moved - moved, holders, run.held())
        if optimum:
            report.optimum.append(run.optimum())
    report.table, report.notes = run.table, run.notes
    return report
