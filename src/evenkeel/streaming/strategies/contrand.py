"""ContRand: the join-biclique, by hash to a subgroup of units and at random within it.

    left units  [ 0 1 | 2 3 ]   d = 2 subgroups        a left row of key k is stored in one unit of left subgroup
    right units [ 4 5 | 6 7 ]   e = 2 subgroups        k mod d, at random, and probes all of right subgroup k mod e

Invariant: the rows that a row may match are stored, each in one unit, in the one subgroup that it probes.
Cost: a row is stored once (formula 1: the state is the input, no more) and sent (n/e + 1) or (m/d + 1) times
(formula 5). A hot key is spread over a subgroup. d = e = 1 is random routing, d = m and e = n is hashing.
Source: BiStream, section 3.2.2 and algorithm 1. Ours: subgroups need not be of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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

Units = tuple[int, ...]


@dataclass(frozen=True)
class Biclique:
    """`groups[input]` are the subgroups of an input's units.

    A row is stored in the unit at `content hash mod length`; a unit that is listed more often gets more rows.
    """

    units: int
    groups: Mapping[str, tuple[Units, ...]]
    strategy: str = "contrand"
    version: int = 0
    draining: Mapping[str, tuple[Units, ...]] = field(default_factory=dict)
    """By subgroup, units that store nothing new and are probed while they hold rows."""
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        return {}

    @property
    def replicates(self) -> bool:
        return True

    def members(self, input: str) -> list[Units]:
        """By subgroup, the units that hold rows of the input: what rows of another input probe."""
        gone = self.draining.get(input) or tuple(() for _ in self.groups[input])
        return [tuple(sorted({*g, *d})) for g, d in zip(self.groups[input], gone, strict=True)]

    @property
    def base(self) -> Any:
        return self.to_json() | {"version": 0}

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        rows = np.arange(len(key))
        first, size, units = _flat(self.groups[input])
        group = np.mod(key, len(first))
        parts = [(rows, units[first[group] + np.mod(row, size[group])], True)]
        for other in self.groups:
            if other != input:
                first, size, units = _flat(self.members(other))
                group = np.mod(key, len(first))
                copies = size[group]
                sent = np.repeat(rows, copies)
                offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
                parts.append((sent, units[first[group[sent]] + offset], False))
        stored = np.concatenate([np.full(len(r), s) for r, _, s in parts])
        return Placements(
            np.concatenate([r for r, _, _ in parts]), np.concatenate([u for _, u, _ in parts]), stored, ~stored, stored
        )

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        mine = _pick(self.groups[input], key, lambda units: _at(units, row))
        placed = [f"array(({mine}) * {FLAGS} + {PRIMARY + STORE})"]
        for other in self.groups:
            if other != input:
                probe = lambda units: f"array({', '.join(str(u * FLAGS + PROBE) for u in units)})"  # noqa: E731
                placed.append(_pick(self.members(other), key, probe))
        return f"concat({', '.join(placed)})"

    def to_json(self) -> dict[str, Any]:
        doc = {name: {i: [list(g) for g in gs] for i, gs in groups.items()}
               for name, groups in (("members", self.groups), ("draining", self.draining))}  # fmt: skip
        return {"strategy": self.strategy, "version": self.version, "units": self.units, **doc,
                "settings": dict(self.settings)}  # fmt: skip


def _flat(groups: Sequence[Units]) -> tuple[Int64, Int64, Int64]:
    """Where each group begins, how long it is, and all of them behind one another."""
    size = np.array([len(g) for g in groups], dtype=np.int64)
    return np.cumsum(size) - size, size, np.array([u for g in groups for u in g], dtype=np.int64)


def _at(units: Units, row: str) -> str:
    """The SQL for the unit that a row is stored in."""
    if units == tuple(range(units[0], units[0] + len(units))):
        return f"{units[0]} + cast(pmod({row}, {len(units)}L) AS int)"
    return f"array({', '.join(map(str, units))})[cast(pmod({row}, {len(units)}L) AS int)]"


def _pick(groups: Sequence[Units], key: str, sql: Callable[[Units], str]) -> str:
    """The SQL for the subgroup that the key hashes to."""
    if len(groups) == 1:
        return sql(groups[0])
    cases = " ".join(f"WHEN {g} THEN {sql(units)}" for g, units in enumerate(groups))
    return f"CASE pmod({key}, {len(groups)}L) {cases} END"


def biclique(inputs: Sequence[str], units: int, subgroups: Mapping[str, int], strategy: str) -> Biclique:
    """Units shared out evenly among the inputs, each share cut into its subgroups."""
    if units < len(inputs):
        raise InvalidUnits.of(units, len(inputs), strategy)
    groups: dict[str, tuple[Units, ...]] = {}
    at = 0
    for i, input in enumerate(inputs):
        share = (units * (i + 1)) // len(inputs) - at
        cuts = [at + share * g // subgroups[input] for g in range(subgroups[input] + 1)]
        groups[input] = tuple(tuple(range(a, b)) for a, b in pairwise(cuts) if b > a)
        at += share
    return Biclique(units, groups, strategy)


class ContRand:
    name = "contrand"
    summary = "join-biclique: hashed to a subgroup of units, at random within it"
    needs_equality = True
    together = False
    copies = False
    options: tuple[str, ...] = ("d", "e")

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        """`options`: d subgroups of the first input's units, e of the second's; two units a subgroup unless given."""
        share = max(1, units // len(inputs))
        asked = {input: options.get("de"[i]) if i < 2 else None for i, input in enumerate(inputs)}
        counts = {i: min(share, int(n or max(1, share // 2))) for i, n in asked.items()}
        return biclique(inputs, units, counts, self.name)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return biclique_from_json(doc)


def biclique_from_json(doc: Mapping[str, Any]) -> RoutingTable:
    groups, draining = (
        {i: tuple(tuple(int(u) for u in g) for g in gs) for i, gs in doc[name].items()}
        for name in ("members", "draining")
    )
    return Biclique(
        int(doc["units"]), groups, str(doc["strategy"]), int(doc["version"]), draining,
        {k: float(v) for k, v in doc["settings"].items()},
    )  # fmt: skip
