"""What a strategy is: it makes a routing table, and a routing table places rows.

    table = strategy.start(inputs, units, options)
    table.place(input, key, row)          ->  (row, unit, store?, probe?) ...
    strategy.from_json(table.to_json())   ->  the same table

Contract, held by one property test over the registry: for any two rows of different inputs that may match,
exactly one unit stores the one and is probed by the other, whichever of the two comes first. A row of input i
probes what is stored of every other input before its epoch, and what the inputs listed before i store in the epoch
itself; so each pair meets once, and all units see one global order (BiStream, section 3.2.3).

A table is a frozen value that turns into JSON and back: the commit of an epoch carries the one that epoch was
routed by. Placement is a function of the row's key hash and content hash alone: a replayed batch, or a task that
runs twice, routes its rows as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from evenkeel.types import Bool, Int64

PRIMARY, STORE, PROBE, FLAGS = 4, 2, 1, 8
"""A placement in one integer: unit * FLAGS + (PRIMARY) + (STORE) + (PROBE). One copy of each row is the primary
one: counters count rows by it."""


@dataclass(frozen=True, eq=False)
class Placements:
    row: Int64
    """Which row of the batch; a row may be placed several times."""
    unit: Int64
    store: Bool
    probe: Bool
    primary: Bool

    @property
    def codes(self) -> Int64:
        flags = self.primary * PRIMARY + self.store * STORE + self.probe * PROBE
        return np.asarray(self.unit * FLAGS + flags, dtype=np.int64)

    @classmethod
    def everywhere(cls, unit: Int64) -> Placements:
        """Every row in one unit, where it is stored and probes."""
        yes = np.ones(len(unit), dtype=bool)
        return cls(np.arange(len(unit)), unit, yes, yes, yes)


class RoutingTable(Protocol):
    @property
    def strategy(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def units(self) -> int: ...

    @property
    def replicates(self) -> bool:
        """Whether a row may be sent to several units."""
        ...

    def place(self, input: str, key: Int64, row: Int64) -> Placements:
        """Where rows go, by the hash of their key (that of their content where the key is NULL) and of content."""
        ...

    def place_sql(self, input: str, key: str, row: str) -> str | None:
        """The same as a Spark expression of type array<int>, in `Placements.codes`; None if there is none."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class UnitLoad:
    """What one unit did in one epoch, by input."""

    unit: int
    stored: Mapping[str, int] = field(default_factory=dict)
    """Rows it holds after the epoch."""
    received: Mapping[str, int] = field(default_factory=dict)
    """Rows it was sent in the epoch, to store, to probe or both."""
    probing: Mapping[str, int] = field(default_factory=dict)
    pairs: int = 0
    seconds: float = 0.0

    @property
    def work(self) -> float:
        """Rows that probed, times rows they probed: FastJoin's load |R_i| * phi_si, summed over the inputs."""
        return float(sum(n * sum(m for i, m in self.stored.items() if i != probe) for probe, n in self.probing.items()))


@dataclass(frozen=True)
class Loads:
    """The load report of an epoch."""

    epoch: int
    units: Sequence[UnitLoad]

    @property
    def heaviest(self) -> UnitLoad | None:
        return max(self.units, key=lambda u: sum(u.received.values()) + u.pairs, default=None)


class Strategy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def needs_equality(self) -> bool: ...

    @property
    def together(self) -> bool:
        """Whether all partners of a row are in one unit, which outer, semi and anti joins ask for."""
        ...

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, int]) -> RoutingTable: ...

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable: ...

