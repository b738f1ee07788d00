"""Streaming HyperCube: light keys hashed, every heavy key on a grid of its own that doubles and halves as the key does.

    heavy key b            right, by content        a left row of b is in all tasks of one row of the grid, a right row
              left,      ┌───┬───┬───┬───┐          in all tasks of one column: stored and probing in the same tasks
              by content │ 0 │ 5 │ 2 │ 7 │          numbers are units, all different within a grid
                         └───┴───┴───┴───┘
    heavy       rows(b) > N / p;  light again when rows(b) < N / 2p
    desired     |R(b)| * sqrt(p / OUT) by |S(b)| * sqrt(p / OUT),  OUT = sum of |R(b)| * |S(b)| over the heavy keys
    a side      doubles when it is below half of what is desired, halves when above twice and units are too full

Invariant: a grid's row and column cross in one task, and its tasks are in different units: each pair meets once.
Sides are powers of two: doubling gives each task of the upper half the rows whose next hash bit is set.
Cost: the grids are within a factor of two of the static HyperCube's; N changes by a constant factor between two
changes of a grid, so what is moved is paid for by what came.
Heavy keys are found from each unit's heaviest: what a unit with n rows leaves out among its k heaviest has fewer than
n / k, and k is asked for so that this is at most N / 2p.
Source: Streaming HyperCube, sections 2.2 and 3. A task goes to the unit with the fewest rows, where the paper counts
tasks; sizing grids for what is coming, and halving late, are ours (docs/adr/0048).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, log2, sqrt
from typing import Any

import numpy as np

from evenkeel.streaming.strategies.base import (
    FLAGS,
    PRIMARY,
    PROBE,
    STORE,
    Exceptions,
    Loads,
    Placements,
    RoutingTable,
    Step,
    Watch,
)
from evenkeel.types import Float64, Int64

LEAST_KEYS = 8
AHEAD, YOUNG, NEAR = 16.0, 4.0, 8.0
"""Epochs ahead that grids are sized for, for keys that have come for fewer than `YOUNG` epochs at their present pace,
and for others: a key that has just turned hot is laid out while it has few rows to move."""
SPARE = 1.7
"""Grids are not halved while the heaviest unit is below so many times what is desired: that moves rows for nothing."""


@dataclass(frozen=True)
class Grid:
    rows: int
    cols: int
    units: tuple[int, ...]
    """Task (x, y) is in unit `units[x * cols + y]`."""

    def of_left(self, x: int) -> tuple[int, ...]:
        return self.units[x * self.cols : (x + 1) * self.cols]

    def of_right(self, y: int) -> tuple[int, ...]:
        return self.units[y :: self.cols]


@dataclass(frozen=True)
class CubeTable:
    units: int
    inputs: tuple[str, str]
    grids: Mapping[int, Grid] = field(default_factory=dict)
    version: int = 0
    strategy: str = "hypercube"

    @property
    def replicates(self) -> bool:
        return any(len(g.units) > 1 for g in self.grids.values())

    @property
    def base(self) -> int:
        return self.units

    def touched(self, after: object) -> Mapping[str, frozenset[int]] | None:
        if not isinstance(after, CubeTable) or after.units != self.units:
            return None
        units: set[int] = set()
        for key in {*self.grids, *after.grids}:
            if self.grids.get(key) != after.grids.get(key):
                units |= {*self.grids[key].units} if key in self.grids else {key % self.units}
        return {i: frozenset(units) for i in self.inputs}

    def lists(self, input: str, grid: Grid) -> list[tuple[int, ...]]:
        if input == self.inputs[0]:
            return [grid.of_left(x) for x in range(grid.rows)]
        return [grid.of_right(y) for y in range(grid.cols)]

    @cached_property
    def exceptions(self) -> Mapping[str, Exceptions]:
        both = STORE + PROBE
        return {
            i: {
                k: tuple(
                    tuple(u * FLAGS + both + (0 if n else PRIMARY) for n, u in enumerate(units))
                    for units in self.lists(i, grid)
                )
                for k, grid in self.grids.items()
            }
            for i in self.inputs
        }

    @cached_property
    def _known(self) -> Int64:
        return np.array(sorted(self.grids), dtype=np.int64)

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        if not len(self._known):
            return Placements.everywhere(np.mod(key, self.units))
        at = np.minimum(np.searchsorted(self._known, key), len(self._known) - 1)
        known = self._known[at] == key
        light = np.flatnonzero(~known)
        rows, units, first = [light], [np.mod(key[light], self.units)], [np.ones(len(light), dtype=bool)]
        for n, k in enumerate(self._known.tolist()):
            here = np.flatnonzero(known & (at == n))
            if not len(here):
                continue
            lists = np.array(self.lists(input, self.grids[k]), dtype=np.int64)
            found = lists[np.mod(row[here], len(lists))]
            rows.append(np.repeat(here, lists.shape[1]))
            units.append(found.reshape(-1))
            first.append(np.tile(np.arange(lists.shape[1]) == 0, len(here)))
        placed = np.concatenate(rows)
        yes = np.ones(len(placed), dtype=bool)
        return Placements(placed, np.concatenate(units), yes, yes, np.concatenate(first))

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        return f"array(cast(pmod({key}, {self.units}L) AS int) * {FLAGS} + {PRIMARY + STORE + PROBE})"

    def to_json(self) -> dict[str, Any]:
        grids = [[k, g.rows, g.cols, list(g.units)] for k, g in self.grids.items()]
        return {"strategy": self.strategy, "version": self.version, "units": self.units, "inputs": list(self.inputs),
                "grids": grids}  # fmt: skip


@dataclass(frozen=True)
class KeyRows:
    """Rows of a heavy key, each counted once."""

    left: float
    right: float

    @property
    def total(self) -> float:
        return self.left + self.right


def desired(key: KeyRows, output: float, workers: int) -> tuple[float, float]:
    """The sides of a key's grid, as real numbers (section 3.2)."""
    scale = sqrt(workers / max(output, 1.0))
    return key.left * scale, key.right * scale


def resized(side: int, wanted: float) -> int:
    """The side as it is while within a factor of two of what is wanted, else doubled or halved to the nearest."""
    if side * 2 >= wanted and (side == 1 or side <= 2 * wanted):
        return side
    return nearest(wanted)


def nearest(wanted: float) -> int:
    return 1 << max(0, round(log2(max(wanted, 1.0))))


class HyperCube:
    name = "hypercube"
    summary = "light keys hashed, heavy ones on grids that double and halve"
    needs_equality = True
    together = False
    copies = True
    needs_rows = True
    needs_band = False
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, float]) -> RoutingTable:
        left, right = inputs
        return CubeTable(units, (left, right))

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        left, right = doc["inputs"]
        grids = {int(k): Grid(int(r), int(c), tuple(int(u) for u in us)) for k, r, c, us in doc["grids"]}
        return CubeTable(int(doc["units"]), (left, right), grids, int(doc["version"]))

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return Watch(keys=int(memory.get("keys", max(LEAST_KEYS, 2 * table.units))))

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, CubeTable)
        found, later, (rows, then) = count(table, loads)
        p = table.units
        held = [sum(u.stored.values()) for u in loads.units]
        kept = {"keys": max(LEAST_KEYS, min(2 * p, ceil(2 * p * max(held, default=0) / max(rows, 1.0))))}
        heavy = {
            k: r for k, r in found.items()
            if r.total > rows / p or later[k].total > then / p or (k in table.grids and r.total > rows / (2 * p))
        }  # fmt: skip
        weight = np.zeros(p)
        for u in loads.units:
            weight[u.unit] = sum(u.stored.values())
        grids = _grids(table, heavy, found, {k: later[k] for k in heavy}, rows, weight)
        if grids == table.grids:
            return Step(kept)
        changed = [k for k in {*grids, *table.grids} if grids.get(k) != table.grids.get(k)]
        reason = f"{len(changed)} grids of {len(grids)} changed, {sum(len(g.units) for g in grids.values())} tasks"
        return Step(kept, replace(table, grids=grids, version=table.version + 1), reason)


def count(table: CubeTable, loads: Loads) -> tuple[dict[int, KeyRows], dict[int, KeyRows], tuple[float, float]]:
    """Rows of the reported keys now and some epochs on, and all rows, each counted once however often it is stored."""
    copies: dict[int, Float64] = {}
    total = np.zeros(2)
    for u in loads.units:
        total += sum(u.stored.values()), sum(u.stored_now.values())
        for side, input in enumerate(table.inputs):
            for k in u.keys.get(input, ()):
                copies.setdefault(k.key, np.zeros((2, 2)))[:, side] += k.stored, k.stored_now
    found, later = {}, {}
    for key, stored in copies.items():
        grid = table.grids.get(key)
        once = stored if grid is None else stored / (grid.cols, grid.rows)
        total -= (stored - once).sum(axis=1)
        ahead = AHEAD if YOUNG * once[1].sum() > once[0].sum() else NEAR
        found[key], later[key] = (KeyRows(*row.tolist()) for row in (once[0], once[0] + ahead * once[1]))
    return found, later, (float(total[0]), float(total[0] + AHEAD * total[1]))


def _grids(
    table: CubeTable, heavy: Mapping[int, KeyRows], found: Mapping[int, KeyRows], later: Mapping[int, KeyRows],
    total: float, weight: Float64,
) -> dict[int, Grid]:  # fmt: skip
    """Grids after every resize that is due; `weight` are the rows of each unit, kept up as tasks come and go."""
    p = table.units
    output = sum(r.left * r.right for r in later.values())
    tight = bool(weight.max() > SPARE * _mean(heavy, total, p)) and heavy.keys() <= table.grids.keys()
    most = 1 << (p.bit_length() - 1)
    out: dict[int, Grid] = {}
    wanted: list[tuple[float, int, int, int]] = []
    for key, grid in table.grids.items():
        rows = found.get(key, KeyRows(0.0, 0.0))
        if key not in heavy:
            weight[list(grid.units)] -= rows.left / grid.rows + rows.right / grid.cols
            weight[key % p] += rows.total
    for key, rows in heavy.items():
        grid = table.grids.get(key, Grid(1, 1, (key % p,)))
        ideal = desired(later[key], output, p)
        sides = (grid.rows, grid.cols) if key in table.grids else (nearest(ideal[0]), nearest(ideal[1]))
        r, c = resized(sides[0], ideal[0]), resized(sides[1], ideal[1])
        if not tight:
            r, c = max(r, grid.rows), max(c, grid.cols)
        while r * c > most:
            tall = r / max(ideal[0], 1e-9) >= c / max(ideal[1], 1e-9)
            r, c = (r // 2, c) if c == 1 or (tall and r > 1) else (r, c // 2)
        wanted.append((rows.left / r + rows.right / c, key, r, c))
    for _, key, r, c in sorted(wanted, reverse=True):
        rows = heavy[key]
        grid = table.grids.get(key, Grid(1, 1, (key % p,)))
        if (r, c) == (grid.rows, grid.cols):
            out[key] = grid
            continue
        weight[list(grid.units)] -= rows.left / grid.rows + rows.right / grid.cols
        out[key] = _resize(grid, r, c, rows.left / r + rows.right / c, weight)
    # A key that became light, or a grid of one task at home, is what hashing does.
    return {k: g for k, g in out.items() if g.units != (k % p,)}


def _mean(heavy: Mapping[int, KeyRows], total: float, units: int) -> float:
    """Rows a unit would have if grids were as desired now and all units alike."""
    output = sum(r.left * r.right for r in heavy.values())
    stored = total - sum(r.total for r in heavy.values())
    for rows in heavy.values():
        r, c = (max(1.0, side) for side in desired(rows, output, units))
        stored += rows.left * c + rows.right * r
    return stored / units


def _resize(grid: Grid, rows: int, cols: int, task: float, weight: Float64) -> Grid:
    """The grid with other sides: a task that was there stays in its unit, new ones go where the fewest rows are."""
    units = np.full((rows, cols), -1, dtype=np.int64)
    old = np.array(grid.units).reshape(grid.rows, grid.cols)
    r, c = min(rows, grid.rows), min(cols, grid.cols)
    units[:r, :c] = old[:r, :c]
    weight[units[units >= 0]] += task
    free = weight.copy()
    free[units[units >= 0]] = np.inf
    for x, y in np.argwhere(units < 0).tolist():
        to = int(np.argmin(free))
        units[x, y] = to
        weight[to] += task
        free[to] = np.inf
    return Grid(rows, cols, tuple(int(u) for u in units.reshape(-1)))
