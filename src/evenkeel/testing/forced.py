"""A strategy that asks for another routing table after every epoch, of every kind there is: for tests of migration.

    plain       any of the tables without exceptions: by hash, biclique, matrix, with any number of units
    moved       the same by hash, but some keys elsewhere, left and right together
    split       keys whose left rows are spread over units, and whose right rows are stored in all of those

Invariant: each table alone meets the strategies' contract, so whatever goes wrong goes wrong between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evenkeel.streaming.strategies import strategy_named, table_from_json
from evenkeel.streaming.strategies.base import (
    FLAGS,
    PRIMARY,
    PROBE,
    STORE,
    Exceptions,
    Loads,
    Options,
    Placements,
    RoutingTable,
    Step,
    Watch,
)
from evenkeel.types import Float64, Int64

ALL = PRIMARY + STORE + PROBE


@dataclass(frozen=True)
class ForcedTable:
    plain: RoutingTable
    version: int = 0
    exceptions: Mapping[str, Exceptions] = field(default_factory=dict)
    strategy: str = "forced"

    @property
    def units(self) -> int:
        return self.plain.units

    @property
    def replicates(self) -> bool:
        return self.plain.replicates or any(len(a) > 1 for e in self.exceptions.values() for k in e.values() for a in k)

    @property
    def base(self) -> Any:
        return self.plain.base

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        special = self.exceptions.get(input, {})
        known = np.array(sorted(special), dtype=np.int64)
        here = np.flatnonzero(np.isin(key, known))
        usual = np.setdiff1d(np.arange(len(key)), here)
        p = self.plain.place(input, key[usual], row[usual], None if position is None else position[usual])
        rows, codes = [usual[p.row]], [p.codes]
        for r in here.tolist():
            ways = special[int(key[r])]
            way = np.array(ways[int(np.mod(row[r], len(ways)))], dtype=np.int64)
            rows.append(np.full(len(way), r))
            codes.append(way)
        code = np.concatenate(codes)
        flags = ((code & f) > 0 for f in (STORE, PROBE, PRIMARY))
        return Placements(np.concatenate(rows), code // FLAGS, *flags)

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        return self.plain.place_sql(input, key, row, position)

    def to_json(self) -> dict[str, Any]:
        special = {i: [[k, ways] for k, ways in e.items()] for i, e in self.exceptions.items()}
        return {"strategy": "forced", "version": self.version, "plain": self.plain.to_json(), "exceptions": special}


class Forced:
    """`tables` are (strategy, units) in turn; on one by hash follow `steps` others that have some keys elsewhere."""

    name = "forced"
    summary = "another table after every epoch"
    needs_equality = False
    needs_rows = True
    needs_band = False
    options: tuple[str, ...] = ()

    def __init__(self, *tables: tuple[str, int], together: bool = False, keys: int = 4, steps: int = 2) -> None:
        self.tables, self.together, self.keys, self.steps = tables, together, keys, steps
        self.copies = not together

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        return ForcedTable(self._plain(inputs, 0))

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        special = {
            i: {int(k): tuple(tuple(int(c) for c in way) for way in ways) for k, ways in e}
            for i, e in doc["exceptions"].items()
        }
        return ForcedTable(table_from_json(doc["plain"]), int(doc["version"]), special)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return Watch(keys=self.keys)

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, ForcedTable)
        turns = int(memory.get("turns", 0)) + 1
        inputs = ("left", "right")
        seen = sorted({k.key for u in loads.units for ks in u.keys.values() for k in ks})[: self.keys]
        if table.plain.strategy == "hash" and seen and turns % (self.steps + 1):
            special: dict[str, Exceptions] = self._special(seen, table.units, turns)
            if turns % 2:
                special = {i: {**table.exceptions.get(i, {}), **e} for i, e in special.items()}
            after = replace(table, version=table.version + 1, exceptions=special)
            if after.exceptions != table.exceptions:
                return Step({"turns": turns}, after, f"keys {seen}")
        plain = self._plain(inputs, turns // (self.steps + 1) if table.plain.strategy == "hash" else turns)
        return Step({"turns": turns}, ForcedTable(plain, table.version + 1), f"{plain.strategy} of {plain.units} units")

    def _plain(self, inputs: Sequence[str], turn: int) -> RoutingTable:
        name, units = self.tables[turn % len(self.tables)]
        return strategy_named(name).start(inputs, units, {})

    def _special(self, keys: list[int], units: int, turn: int) -> dict[str, Exceptions]:
        left: dict[int, tuple[tuple[int, ...], ...]] = {}
        right: dict[int, tuple[tuple[int, ...], ...]] = {}
        for n, key in enumerate(keys):
            a, b = (key + turn + n) % units, (key + turn + 2 * n + 1) % units
            if self.together or n % 2 == 0 or a == b:
                left[key] = right[key] = ((a * FLAGS + ALL,),)
            else:
                left[key] = (a * FLAGS + ALL,), (b * FLAGS + ALL,)
                right[key] = ((a * FLAGS + ALL, b * FLAGS + STORE + PROBE),)
        return {"left": left, "right": right}
