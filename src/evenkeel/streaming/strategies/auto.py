"""Auto: begins with the cheapest table that the condition allows, and becomes another strategy when loads ask for it.

    an equality    hash: every row once           heaviest / mean work above SKEW             -> for skewed keys
    a band         random: stored once, any data  fewer pairs than rows sent to find them     -> by ranges
    neither        random: the same               the same, in a window                       -> a matrix
    and no window  random, and it stays that

A change takes PATIENCE epochs in a row that ask for it, and happens once.
Invariant: the routing table says whose it is; memory belongs to the strategy of the table in force.
Cost: until it changes, that of the first strategy alone; the change is a migration like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenkeel.streaming.strategies.base import Adaptive, Loads, Options, RoutingTable, Step, Strategy, Watch

SKEW = 1.5
PATIENCE = 2


class Auto:
    name = "auto"
    summary = "begins as the cheapest strategy for the condition, becomes another when loads ask for it"
    needs_rows = False
    needs_band = False
    options: tuple[str, ...] = ()

    def __init__(self, first: Strategy, then: Adaptive, told: Options | None = None) -> None:
        """`told` are the options that `then` starts with."""
        self.first, self.then, self.told = first, then, told or {}
        self.needs_equality, self.together = first.needs_equality, False
        self.copies = first.copies or then.copies

    def of(self, table: RoutingTable) -> Strategy:
        """Whose table it is."""
        return self.then if table.strategy == self.then.name else self.first

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        return self.first.start(inputs, units, options)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return (self.then if doc["strategy"] == self.then.name else self.first).from_json(doc)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return self.then.watch(table, memory) if table.strategy == self.then.name else Watch()

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        if table.strategy == self.then.name:
            return self.then.adapt(table, loads, memory)
        why = _skewed(loads) if self.then.needs_equality else _few_pairs(loads)
        times = int(memory.get("times", 0)) + 1 if why else 0
        if times < PATIENCE:
            return Step({"times": times})
        after: Any = self.then.start(list(loads.units[0].received), table.units, self.told)
        reason = f"{why}, {times} epochs in a row: from now on {self.then.name}"
        return Step({}, replace(after, version=table.version + 1), reason)


def _skewed(loads: Loads) -> str:
    work = [u.work for u in loads.units]
    ratio = max(work) * len(work) / sum(work) if sum(work) else 1.0
    return f"heaviest unit at {ratio:.1f} times the mean" if ratio > SKEW else ""


def _few_pairs(loads: Loads) -> str:
    sent, pairs = sum(sum(u.received.values()) for u in loads.units), sum(u.pairs for u in loads.units)
    return f"{pairs:,} pairs of {sent:,} rows sent" if pairs < sent else ""
