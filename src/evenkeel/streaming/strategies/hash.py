"""Hash: both inputs of a key in one unit, by the key's hash.

Invariant: rows that may match have one key, so one unit stores the one and is probed by the other.
Cost: every row is sent once and stored once, half of what ContRand with subgroups of one unit sends, because a unit
here holds both inputs. A key with more than 1/units of the rows makes its unit the heaviest: there is no cure here.
Source: content-sensitive routing of BiStream, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenkeel.streaming.strategies.base import FLAGS, Exceptions, Options, Placements, RoutingTable
from evenkeel.streaming.strategies.keyed import KeyedTable
from evenkeel.types import Float64, Int64


@dataclass(frozen=True)
class HashTable:
    units: int
    version: int = 0
    strategy: str = "hash"

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        return {}

    @property
    def replicates(self) -> bool:
        return False

    @property
    def base(self) -> Any:
        return self.to_json() | {"version": 0}

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        return Placements.everywhere(np.mod(key, self.units))

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        return f"array(cast(pmod({key}, {self.units}L) AS int) * {FLAGS} + {FLAGS - 1})"

    def to_json(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "version": self.version, "units": self.units}


class Hash:
    name = "hash"
    summary = "by the key's hash: every row once, no help against a hot key"
    needs_equality = True
    together = True
    copies = False
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        return HashTable(units)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        if "slots" in doc:  # with elastic units
            return KeyedTable.from_json(doc)
        return HashTable(int(doc["units"]), int(doc["version"]))
