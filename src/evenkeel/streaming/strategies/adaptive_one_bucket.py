"""Adaptive 1-Bucket: a join matrix whose sides change with the sizes of the inputs.

    n x m -> n/2 x 2m        rows x and x + n/2 of the matrix become one, every column y becomes y and y + m
    ┌───┬───┐               ┌───┬───┬───┬───┐      unit of (x, y) stays (x, y), unit of (x + n/2, y) becomes (x, y + m):
    │ 0 │ 1 │               │ 0 │ 1 │ 2 │ 3 │      each keeps its left rows, gets those of one other unit,
    ├───┼───┤      ->       └───┴───┴───┴───┘      and drops half of its right rows; nothing else moves
    │ 2 │ 3 │
    └───┴───┘
    decision point     when an input has doubled (or, in a window, halved) since the last
    optimal            least |R| * size_R / n + |S| * size_S / m: a unit's input load

Units that are no power of two form groups that are: 20 = 16 + 4. A row is stored in one group, drawn by its content
with the group's size as weight, and probes in all of them; epochs give all groups one order of arrival.
Invariant: within a group a row and a column cross in one unit, and each row is stored in one group.
Cost: between two decision points the optimum changes by one step at the most (Lemma 4.2 of Elseidy et al.), so a
unit's input load is at most 1.25 times the optimal; migrations cost at most twice what routing the input costs.
Source: Squall, section 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenkeel import hashing
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


@dataclass(frozen=True)
class Group:
    """A matrix of n x m units; cell (x, y) is `cells[x * m + y]`."""

    n: int
    m: int
    cells: tuple[int, ...]

    def line(self, left: bool, at: int) -> tuple[int, ...]:
        return self.cells[at * self.m : (at + 1) * self.m] if left else self.cells[at :: self.m]

    def lines(self, left: bool) -> int:
        return self.n if left else self.m

    def wider(self) -> Group:
        """n/2 x 2m."""
        cells = np.array(self.cells).reshape(self.n, self.m)
        joined = np.hstack([cells[: self.n // 2], cells[self.n // 2 :]])
        return Group(self.n // 2, 2 * self.m, tuple(int(u) for u in joined.reshape(-1)))

    def taller(self) -> Group:
        """2n x m/2."""
        cells = np.array(self.cells).reshape(self.n, self.m)
        joined = np.vstack([cells[:, : self.m // 2], cells[:, self.m // 2 :]])
        return Group(2 * self.n, self.m // 2, tuple(int(u) for u in joined.reshape(-1)))

    def load(self, left: float, right: float) -> float:
        """The input-load factor, for inputs of so many bytes."""
        return left / self.n + right / self.m

    def better(self, left: float, right: float) -> Group:
        """The best mapping one step away, or this one."""
        options = [self]
        if self.n > 1:
            options.append(self.wider())
        if self.m > 1:
            options.append(self.taller())
        return min(options, key=lambda g: g.load(left, right))


@dataclass(frozen=True)
class Matrices:
    groups: tuple[Group, ...]
    inputs: tuple[str, str]
    version: int = 0
    strategy: str = "adaptive_one_bucket"

    @property
    def units(self) -> int:
        return sum(len(g.cells) for g in self.groups)

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        return {}

    @property
    def replicates(self) -> bool:
        return self.units > 1

    @property
    def base(self) -> None:
        return None

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        left = input == self.inputs[0]
        place = np.mod(row, self.units)
        # Hashed again for each purpose, so that group, line of a left row and line of a right row are independent.
        line = hashing.rehash(row if left else hashing.rehash(row))
        rows, units, stored, first = [], [], [], []
        begin = 0
        for g in self.groups:
            lists = np.array([g.line(left, x) for x in range(g.lines(left))], dtype=np.int64)
            found = lists[np.mod(line, len(lists))]
            mine = (place >= begin) & (place < begin + len(g.cells))
            begin += len(g.cells)
            rows.append(np.repeat(np.arange(len(row)), lists.shape[1]))
            units.append(found.reshape(-1))
            stored.append(np.repeat(mine, lists.shape[1]))
            first.append(np.tile(np.arange(lists.shape[1]) == 0, len(row)))
        store = np.concatenate(stored)
        probe = np.ones(len(store), dtype=bool)
        return Placements(np.concatenate(rows), np.concatenate(units), store, probe, store & np.concatenate(first))

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        left = input == self.inputs[0]
        line = f"xxhash64({row})" if left else f"xxhash64(xxhash64({row}))"
        parts, begin = [], 0
        for g in self.groups:
            end = begin + len(g.cells)
            lists = ", ".join(
                f"array({', '.join(str(u * FLAGS + PROBE) for u in g.line(left, x))})" for x in range(g.lines(left))
            )
            codes = f"array({lists})[cast(pmod({line}, {g.lines(left)}L) AS int)]"
            mine = f"pmod({row}, {self.units}L) BETWEEN {begin}L AND {end - 1}L"
            flagged = f"transform({codes}, (c, i) -> c + IF({mine}, IF(i = 0, {STORE + PRIMARY}, {STORE}), 0))"
            parts.append(flagged)
            begin = end
        return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"

    def to_json(self) -> dict[str, Any]:
        groups = [[g.n, g.m, list(g.cells)] for g in self.groups]
        return {"strategy": self.strategy, "version": self.version, "inputs": list(self.inputs), "groups": groups}


def powers(units: int) -> list[int]:
    """The powers of two that add up to a number, greatest first."""
    return [1 << b for b in range(units.bit_length() - 1, -1, -1) if units >> b & 1]


class AdaptiveOneBucket:
    name = "adaptive_one_bucket"
    summary = "join-matrix whose sides follow the sizes of the inputs; any condition"
    needs_equality = False
    together = False
    copies = True
    needs_rows = True
    needs_band = False
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, float]) -> RoutingTable:
        left, right = inputs
        groups, begin = [], 0
        for size in powers(units):
            n = 1 << (size.bit_length() // 2)
            groups.append(Group(n, size // n, tuple(range(begin, begin + size))))
            begin += size
        return Matrices(tuple(groups), (left, right))

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        left, right = doc["inputs"]
        groups = tuple(Group(int(n), int(m), tuple(int(u) for u in cells)) for n, m, cells in doc["groups"])
        return Matrices(groups, (left, right), int(doc["version"]))

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return Watch()

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, Matrices)
        sizes = measure(table, loads)
        rows = {i: r for i, (r, _) in sizes.items()}
        before = memory.get("rows")
        if before is not None and not any(_twofold(before[i], rows[i]) for i in table.inputs):
            return Step(dict(memory))
        left, right = (r * b for r, b in (sizes[i] for i in table.inputs))
        groups = tuple(g.better(left, right) for g in table.groups)
        if groups == table.groups:
            return Step({"rows": rows})
        now, then = table.groups[0], groups[0]
        reason = f"{now.n} x {now.m} to {then.n} x {then.m}: {rows[table.inputs[0]]:,.0f} left rows, " \
                 f"{rows[table.inputs[1]]:,.0f} right rows"  # fmt: skip
        # More than one step away, as at the first decision, the next comes right after this one.
        settled = all(g.better(left, right) == g for g in groups)
        kept = {"rows": rows} if settled else {}
        return Step(kept, replace(table, groups=groups, version=table.version + 1), reason)


def measure(table: Matrices, loads: Loads) -> dict[str, tuple[float, float]]:
    """Of each input the rows, each counted once, and the bytes of a row (1 where they are not known)."""
    by_unit = {u.unit: u for u in loads.units}
    out = {}
    for i in table.inputs:
        rows = copies = size = 0.0
        for g in table.groups:
            here = [by_unit[u] for u in g.cells if u in by_unit]
            stored = float(sum(u.stored.get(i, 0) for u in here))
            rows += stored / (g.m if i == table.inputs[0] else g.n)
            copies += stored
            size += sum(u.bytes.get(i, 0) for u in here)
        out[i] = rows, size / copies if size and copies else 1.0
    return out


def _twofold(before: float, now: float) -> bool:
    return now >= 2 * before or 2 * now <= before
