"""Tables that place keys: most by slots of a hash, some one by one, the heaviest split over several units.

    input     slot of the key's hash -> unit          key -> unit           key -> a unit for each part of its rows
    left      [0 1 2 3 0 1 2 3]                       77 -> 2               12 -> [0 0 3 3]    part = content mod parts
    right     [0 1 2 3 0 1 2 1]

A row is stored in the one unit its own input's lists say, and probes every unit where the other inputs store its key.
Invariant: each stored row is in one unit, and all units that hold its key are probed by each row of another input, so
each pair meets once. Where all lists agree, as at the start, a row is sent once and this is plain hashing.
Cost: a row of a key that another input has split over d units is sent up to d + 1 times.
Source: the routing table of FastJoin, sections III-A and III-D; slots, and keys in parts, are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenkeel.streaming.strategies.base import FLAGS, PRIMARY, PROBE, STORE, Exceptions, Placements, folded
from evenkeel.types import Float64, Int64

Units = tuple[int, ...]
MOST_SLOTS = 16_384


@dataclass(frozen=True)
class KeyedTable:
    units: int
    slots: Mapping[str, Units]
    keys: Mapping[str, Mapping[int, Units]]
    """By input: of a key hash the one unit, or as many units as there are parts."""
    parts: int
    strategy: str
    version: int = 0
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def replicates(self) -> bool:
        return bool(any(self.keys.values())) or len(set(self.slots.values())) > 1

    @property
    def base(self) -> tuple[Units, ...]:
        return tuple(self.slots.values())

    def touched(self, after: object) -> Mapping[str, frozenset[int]] | None:
        if not isinstance(after, KeyedTable) or self.parts != after.parts:
            return None
        if any(len(s) != len(after.slots[i]) for i, s in self.slots.items()):
            return None
        out = {}
        for i, slots in self.slots.items():
            units = {a for a, b in zip(slots, after.slots[i], strict=True) if a != b}
            for key in {*self.keys[i], *after.keys[i]}:
                now, then = self.stored(i, key), after.stored(i, key)
                if now == then:
                    continue
                if len(now) == len(then):
                    units |= {a for a, b in zip(now, then, strict=True) if a != b}
                elif len(now) > 1:  # and whole then
                    units |= {*now} - {*then}
                elif {*now} != {*then}:
                    units |= {*now}
            out[i] = frozenset(units)
        return out

    @cached_property
    def exceptions(self) -> Mapping[str, Exceptions]:
        every = sorted({k for keys in self.keys.values() for k in keys})
        return {i: {k: self._alternatives(i, k) for k in every} for i in self.slots}

    def _alternatives(self, input: str, key: int) -> tuple[tuple[int, ...], ...]:
        probed = self.probed(input, key)
        return tuple(_codes(unit, probed) for unit in self.stored(input, key))

    def stored(self, input: str, key: int) -> Units:
        """The units that rows of the input with this key are stored in, by part."""
        slots = self.slots[input]
        return self.keys[input].get(key) or (slots[key % len(slots)],)

    def probed(self, input: str, key: int) -> Units:
        """The units that rows of the input with this key probe."""
        return tuple(sorted({u for other in self.slots if other != input for u in self.stored(other, key)}))

    @cached_property
    def _known(self) -> Int64:
        return np.array(sorted({k for keys in self.keys.values() for k in keys}), dtype=np.int64)

    @cached_property
    def _listed(self) -> Mapping[str, tuple[Int64, Int64, Int64]]:
        """By input, for the known keys: the unit of each part; where its probed units begin; the probed units."""
        out = {}
        for i in self.slots:
            parts = np.empty((len(self._known), self.parts), dtype=np.int64)
            ends, units = [0], list[int]()
            for at, key in enumerate(self._known.tolist()):
                parts[at] = self.stored(i, key)
                units += self.probed(i, key)
                ends.append(len(units))
            out[i] = parts, np.array(ends, dtype=np.int64), np.array(units, dtype=np.int64)
        return out

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        rows = np.arange(len(key))
        slots = np.array(self.slots[input], dtype=np.int64)
        unit = slots[np.mod(key, len(slots))]
        probing: list[tuple[Int64, Int64]] = []
        plain = np.ones(len(key), dtype=bool)
        if len(self._known):
            at = np.minimum(np.searchsorted(self._known, key), len(self._known) - 1)
            hit = np.flatnonzero(self._known[at] == key)
            at = at[hit]
            plain[hit] = False
            parts, ends, units = self._listed[input]
            unit[hit] = parts[at, np.mod(row[hit], self.parts)]
            copies = ends[at + 1] - ends[at]
            sent = np.repeat(np.arange(len(hit)), copies)
            offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
            probing.append((hit[sent], units[ends[at[sent]] + offset]))
        usual = rows[plain]
        for n, other in enumerate(o for o in self.slots if o != input):
            theirs = np.array(self.slots[other], dtype=np.int64)
            to = theirs[np.mod(key[usual], len(theirs))]
            new = np.ones(len(to), dtype=bool)
            if n:  # with several other inputs a unit is probed once for all of them
                seen = np.concatenate([r * self.units + u for r, u in probing])
                new = ~np.isin(usual * self.units + to, seen)
            probing.append((usual[new], to[new]))
        sent, to = (np.concatenate(parts) for parts in zip(*probing, strict=True))
        here = to == unit[sent]
        probes = np.zeros(len(key), dtype=bool)
        probes[sent[here]] = True
        sent, to = sent[~here], to[~here]
        no, yes = np.zeros(len(sent), dtype=bool), np.ones(len(key), dtype=bool)
        return Placements(
            np.concatenate([rows, sent]),
            np.concatenate([unit, to]),
            np.concatenate([yes, no]),
            np.concatenate([probes, ~no]),
            np.concatenate([yes, no]),
        )

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        if len(set(self.base)) == 1 and self._in_turn:
            return f"array(cast(pmod({key}, {self.units}L) AS int) * {FLAGS} + {PRIMARY + STORE + PROBE})"
        # All of a slot's placements in one look: expressions that work them out are too long a method for the JVM's
        # compiler, and rows are placed five times as slowly.
        mine, theirs = self.slots[input], [t for i, t in self.slots.items() if i != input]
        count = math.lcm(*(len(t) for t in self.base))
        ways = [_codes(mine[n % len(mine)], tuple(sorted({t[n % len(t)] for t in theirs}))) for n in range(count)]
        return f"{folded(ways, 'array<array<int>>')}[cast(pmod({key}, {count}L) AS int)]"

    @property
    def _in_turn(self) -> bool:
        """Whether slots repeat the units in order: then a key's unit is its hash modulo the units."""
        slots = self.base[0]
        return len(slots) % self.units == 0 and slots == tuple(range(self.units)) * (len(slots) // self.units)

    def to_json(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy, "version": self.version, "units": self.units, "parts": self.parts,
            "slots": {i: list(s) for i, s in self.slots.items()},
            "keys": {i: [[k, list(u)] for k, u in keys.items()] for i, keys in self.keys.items()},
            "settings": dict(self.settings),
        }  # fmt: skip

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> KeyedTable:
        return cls(
            int(doc["units"]),
            {i: tuple(int(u) for u in s) for i, s in doc["slots"].items()},
            {i: {int(k): tuple(int(u) for u in us) for k, us in keys} for i, keys in doc["keys"].items()},
            int(doc["parts"]), str(doc["strategy"]), int(doc["version"]),
            {k: float(v) for k, v in doc["settings"].items()},
        )  # fmt: skip

    @classmethod
    def start(cls, inputs: Sequence[str], units: int, strategy: str, settings: Mapping[str, float]) -> KeyedTable:
        """Plain hashing: a key's slot, taken modulo the units, is its hash modulo the units."""
        a_unit = max(1, min(64, MOST_SLOTS // units))
        slots = tuple(range(units)) * a_unit
        return cls(units, {i: slots for i in inputs}, {i: {} for i in inputs}, parts_for(units), strategy, 0, settings)

    def changed(self, slots: Mapping[str, Units], keys: Mapping[str, Mapping[int, Units]], units: int) -> KeyedTable:
        """The next version; keys that are where their slot is are no exceptions."""
        kept = {i: {k: u for k, u in keys[i].items() if set(u) != {slots[i][k % len(slots[i])]}} for i in self.slots}
        return replace(self, slots=dict(slots), keys=kept, units=units, version=self.version + 1)


def parts_for(units: int) -> int:
    """A power of two, so that rows of a split key can be cut finely enough: four parts a unit, 64 at the least."""
    return max(64, 1 << (4 * units - 1).bit_length())


def _codes(stored: int, probed: Units) -> Units:
    """The placements of a row that is stored in one unit and probes these."""
    here = stored * FLAGS + PRIMARY + STORE + (PROBE if stored in probed else 0)
    return (here, *(u * FLAGS + PROBE for u in probed if u != stored))
