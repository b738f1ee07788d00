"""Auto: begins with the cheapest table that the condition allows, and becomes another strategy when loads ask for it.

    an equality     hash: every row once, nothing beside it stored
                    heaviest / mean work above SKEW for PATIENCE epochs in a row -> the strategy for skewed keys
    none            random, whose units do the same work whatever the values are

Invariant: the routing table says whose it is; memory belongs to the strategy of the table in force.
Cost: until it changes, that of the first strategy alone; the change is a migration like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenkeel.streaming.strategies.base import Loads, Options, RoutingTable, Step, Strategy, Watch, adapts

SKEW = 1.5
PATIENCE = 2


class Auto:
    name = "auto"
    summary = "begins as the cheapest strategy for the condition, becomes another when loads are skewed"
    needs_band = False
    options: tuple[str, ...] = ()

    def __init__(self, first: Strategy, skewed: Strategy | None) -> None:
        self.first, self.skewed = first, skewed
        self.needs_equality, self.together = first.needs_equality, first.together

    def of(self, table: RoutingTable) -> Strategy:
        """Whose table it is."""
        return self.skewed if self.skewed is not None and table.strategy == self.skewed.name else self.first

    @property
    def needs_rows(self) -> bool:
        return False

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        return self.first.start(inputs, units, options)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        mine = self.skewed if self.skewed is not None and doc["strategy"] == self.skewed.name else self.first
        return mine.from_json(doc)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        now = self.of(table)
        return now.watch(table, memory) if adapts(now) else Watch()

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        now = self.of(table)
        if adapts(now):
            return now.adapt(table, loads, memory)
        if self.skewed is None:
            return Step()
        work = [u.work for u in loads.units]
        total = sum(work)
        ratio = max(work) * len(work) / total if total else 1.0
        seen = int(memory.get("skewed", 0)) + 1 if ratio > SKEW else 0
        if seen < PATIENCE:
            return Step({"skewed": seen})
        inputs = list(loads.units[0].stored)
        after: Any = self.skewed.start(inputs, table.units, {})
        why = f"heaviest unit at {ratio:.1f} times the mean, {seen} epochs long: from now on {after.strategy}"
        return Step({}, replace(after, version=table.version + 1), why)
