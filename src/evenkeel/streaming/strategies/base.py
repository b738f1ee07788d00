"""What a strategy is: it makes a routing table, and a routing table places rows.

    table = strategy.start(inputs, units, options)
    table.place(input, key, row)          ->  (row, unit, store?, probe?) ...
    strategy.from_json(table.to_json())   ->  the same table

Contract, held by one property test over the registry: for any two rows of different inputs that may match,
exactly one unit stores the one and is probed by the other, whichever of the two comes first. A row of input i
probes what is stored of every other input before its epoch, and what the inputs listed before i store in the epoch
itself; so each pair meets once, and all units see one global order (BiStream, section 3.2.3).

A table is a frozen value that turns into JSON and back: the commit of an epoch carries the one that epoch was
routed by. Placement is a function of the row's key hash, content hash and position alone: a replayed batch, or a
task that runs twice, routes its rows as before, and a stored row can be placed again by another table.

A strategy that adapts also says, after every epoch, what it learnt and which table it wants next:

    strategy.watch(table, memory)           ->  what units are to report of the coming epoch
    strategy.adapt(table, loads, memory)    ->  Step(memory, table?, moves?)

Its memory is plain JSON and travels in the commit, so that a restart goes on where the crash was. The table it asks
for comes into force in a later commit, together with the state where that table wants it (`state/migration.py`);
until then the old one routes. So at any commit every stored row is where the table in force stores it, except where
a step says `moves=False`: then rows stay, and the new table probes wherever the old one had stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from evenkeel.types import Bool, Float64, Int64

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


Exceptions = Mapping[int, tuple[tuple[int, ...], ...]]
"""For a key hash, the alternatives among which a row picks by `content hash mod their number`; each is a tuple of
placements as in `Placements.codes`."""


@runtime_checkable
class Tells(Protocol):
    """A table that can say what a migration may leave alone."""

    def touched(self, after: object) -> Mapping[str, frozenset[int]] | None:
        """By input, the units with rows that table `after` may store elsewhere; None if it may be any."""
        ...


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

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        """By input, the keys that are placed one by one; `place_sql` leaves them out, `place` does not."""
        ...

    @property
    def base(self) -> Any:
        """Tables of equal bases place alike every key that neither of them has an exception for; None: who knows."""
        ...

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        """Where rows go, by the hash of their key (that of their content where the key is NULL) and of content.

        `position` is that of the condition's first band, NaN where it is NULL; None where there is no band.
        """
        ...

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        """The same as a Spark expression of type array<int>, in `Placements.codes`."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class KeyLoad:
    key: int
    """Hash of the key."""
    stored: int
    """Rows of the input that the unit holds after the epoch."""
    stored_now: int
    """Of them, those that the epoch brought."""
    probing: int
    """Rows of the input that probed in the unit during the epoch."""


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
    keys: Mapping[str, Sequence[KeyLoad]] = field(default_factory=dict)
    """The unit's heaviest keys, as many as were asked for, heaviest first: the same keys for every input."""
    sample: Mapping[str, Sequence[tuple[float, int]]] = field(default_factory=dict)
    """(position, content hash) of the rows whose primary copy came here and whose hash fell below the rate."""
    stored_now: Mapping[str, int] = field(default_factory=dict)
    """Of the rows it holds, those that the epoch brought."""
    bytes: Mapping[str, int] = field(default_factory=dict)
    """Of the rows it holds; empty where that is not known."""

    @property
    def work(self) -> float:
        """Rows that probed, times rows they probed: FastJoin's load |R_i| * phi_si, summed over the inputs."""
        return float(sum(n * sum(m for i, m in self.stored.items() if i != probe) for probe, n in self.probing.items()))


@dataclass(frozen=True)
class Loads:
    """The load report of an epoch."""

    epoch: int
    units: Sequence[UnitLoad]
    budget: float = float("inf")
    """Bytes of segments that can be looked at for a table to be in force at once."""

    @property
    def heaviest(self) -> UnitLoad | None:
        return max(self.units, key=lambda u: sum(u.received.values()) + u.pairs, default=None)


@dataclass(frozen=True)
class Watch:
    """What a strategy wants to know of the coming epoch."""

    keys: int = 0
    """How many of its heaviest keys a unit reports, by input."""
    units: tuple[int, ...] | None = None
    """The units that report keys; None for all."""
    rate: float = 0.0
    """The share of rows whose positions are reported."""


@dataclass(frozen=True)
class Step:
    """What a strategy makes of an epoch."""

    memory: Mapping[str, Any] = field(default_factory=dict)
    """What it wants to remember: plain JSON, of bounded size."""
    table: RoutingTable | None = None
    """The table it wants; None to stay."""
    reason: str = ""
    """For people, one line: why."""
    moves: bool = True
    """Whether stored rows go where the new table stores them."""


Options = Mapping[str, float]


class Strategy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def needs_equality(self) -> bool: ...

    @property
    def together(self) -> bool:
        """Whether all partners of a row are in one unit, which then settles outer, semi and anti joins alone."""
        ...

    @property
    def copies(self) -> bool:
        """Whether a row may be stored in several units; one of them has the primary copy."""
        ...

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its options."""
        ...

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable: ...

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable: ...


class Adaptive(Strategy, Protocol):
    """A strategy whose tables change while rows flow. Pure: no clock, no randomness, no state of its own."""

    @property
    def needs_rows(self) -> bool:
        """Whether placing a stored row again takes its content hash, which is then stored beside it (`_row`)."""
        ...

    @property
    def needs_band(self) -> bool:
        """Whether rows are placed by position; `start` is then told the band by the options lo, hi and slack."""
        ...

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch: ...

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        """Called once after every epoch that was routed by the table in force after it: not while a table asked for
        before is on its way, nor for the epoch that brings it into force."""
        ...


def adapts(strategy: Strategy) -> TypeGuard[Adaptive]:
    return hasattr(strategy, "adapt")


def folded(values: object, kind: str) -> str:
    """Constants in SQL as one text, which Spark reads once, when it plans; its parser takes seconds for thousands."""
    return f"from_json('{json.dumps(values, separators=(',', ':'))}', '{kind}')"
