"""Random: the join-biclique for any condition; a row is stored in one unit and probes all units of the other input.

Invariant: whatever a row may match is stored in exactly one unit of the other input, and the row probes them all.
Cost: a row is sent n + 1 times (formula 5 with d = e = 1) and stored once; every unit holds and does the same work
however skewed the keys are. "At random" is the hash of the row's content and of its epoch.
Source: content-insensitive routing of BiStream, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.streaming.strategies.base import Options, RoutingTable
from evenkeel.streaming.strategies.contrand import biclique, biclique_from_json


class Random:
    name = "random"
    summary = "join-biclique: stored at random, probes every unit of the other input; any condition"
    needs_equality = False
    together = False
    copies = False
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        return biclique(inputs, units, {i: 1 for i in inputs}, self.name)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return biclique_from_json(doc)
