"""ContRand: the join-biclique, by hash to a subgroup of units and at random within it.

    left units  [ 0 1 | 2 3 ]   d = 2 subgroups        a left row of key k is stored in one unit of left subgroup
    right units [ 4 5 | 6 7 ]   e = 2 subgroups        k mod d, at random, and probes all of right subgroup k mod e

Invariant: the rows that a row may match are stored, each in one unit, in the one subgroup that it probes.
Cost: a row is stored once (formula 1: the state is the input, no more) and sent (n/e + 1) or (m/d + 1) times
(formula 5). A hot key is spread over a subgroup. d = e = 1 is random routing, d = m and e = n is hashing.
Source: BiStream, section 3.2.2 and algorithm 1. Ours: subgroups need not be of one size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from evenkeel.errors import InvalidUnits
from evenkeel.streaming.strategies.base import (
    FLAGS,
    PRIMARY,
    PROBE,
    STORE,
    Exceptions,
    Options,
    Placements,
    RoutingTable,
)
from evenkeel.types import Float64, Int64


@dataclass(frozen=True)
class Biclique:
    """`groups[input]` is a tuple of subgroups, each (first unit, number of units)."""

    units: int
    groups: Mapping[str, tuple[tuple[int, int], ...]]
    strategy: str = "contrand"
    version: int = 0

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        return {}

    @property
    def replicates(self) -> bool:
        return True

    @property
    def base(self) -> Any:
        return self.to_json() | {"version": 0}

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        rows = np.arange(len(key))
        first, size = self._arrays(input)
        group = np.mod(key, len(first))
        parts = [(rows, first[group] + np.mod(row, size[group]), True)]
        for other in self.groups:
            if other != input:
                first, size = self._arrays(other)
                group = np.mod(key, len(first))
                copies = size[group]
                sent = np.repeat(rows, copies)
                offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
                parts.append((sent, first[group[sent]] + offset, False))
        stored = np.concatenate([np.full(len(r), s) for r, _, s in parts])
        return Placements(
            np.concatenate([r for r, _, _ in parts]), np.concatenate([u for _, u, _ in parts]), stored, ~stored, stored
        )

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        mine = _pick(self.groups[input], key, lambda a, k: f"{a} + cast(pmod({row}, {k}L) AS int)")
        placed = [f"array(({mine}) * {FLAGS} + {PRIMARY + STORE})"]
        for other in self.groups:
            if other != input:
                probe = lambda a, k: f"array({', '.join(str((a + i) * FLAGS + PROBE) for i in range(k))})"  # noqa: E731
                placed.append(_pick(self.groups[other], key, probe))
        return f"concat({', '.join(placed)})"

    def to_json(self) -> dict[str, Any]:
        groups = {i: [list(g) for g in gs] for i, gs in self.groups.items()}
        return {"strategy": self.strategy, "version": self.version, "units": self.units, "groups": groups}

    def _arrays(self, input: str) -> tuple[Int64, Int64]:
        groups = np.array(self.groups[input], dtype=np.int64)
        return groups[:, 0], groups[:, 1]


def _pick(groups: Sequence[tuple[int, int]], key: str, sql: Any) -> str:
    """The SQL for the subgroup that the key hashes to."""
    if len(groups) == 1:
        return str(sql(*groups[0]))
    cases = " ".join(f"WHEN {g} THEN {sql(a, k)}" for g, (a, k) in enumerate(groups))
    return f"CASE pmod({key}, {len(groups)}L) {cases} END"


def biclique(inputs: Sequence[str], units: int, subgroups: Mapping[str, int], strategy: str) -> Biclique:
    """Units shared out evenly among the inputs, each share cut into its subgroups."""
    if units < len(inputs):
        raise InvalidUnits.of(units, len(inputs), strategy)
    groups: dict[str, tuple[tuple[int, int], ...]] = {}
    at = 0
    for i, input in enumerate(inputs):
        share = (units * (i + 1)) // len(inputs) - at
        cuts = [at + share * g // subgroups[input] for g in range(subgroups[input] + 1)]
        groups[input] = tuple((a, b - a) for a, b in pairwise(cuts) if b > a)
        at += share
    return Biclique(units, groups, strategy)


class ContRand:
    name = "contrand"
    summary = "join-biclique: hashed to a subgroup of units, at random within it"
    needs_equality = True
    together = False
    options: tuple[str, ...] = ("d", "e")

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        """`options`: d subgroups of the first input's units, e of the second's; two units a subgroup unless given."""
        share = max(1, units // len(inputs))
        asked = {input: int(options.get("de"[i], 0)) if i < 2 else 0 for i, input in enumerate(inputs)}
        return biclique(inputs, units, {i: min(share, n or max(1, share // 2)) for i, n in asked.items()}, self.name)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return biclique_from_json(doc)


def biclique_from_json(doc: Mapping[str, Any]) -> RoutingTable:
    groups = {i: tuple((int(a), int(k)) for a, k in gs) for i, gs in doc["groups"].items()}
    return Biclique(int(doc["units"]), groups, str(doc["strategy"]), int(doc["version"]))
