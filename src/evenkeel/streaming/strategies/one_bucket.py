"""1-Bucket: the join-matrix; a left row is in all cells of one stripe, a right row in one cell of every stripe.

        right rows, at random
       ┌─────┬─────┐
     L │  0  │  1  │        stored and probing in the same cells
       ├─────┼─────┤
       │  2  │  3  │
       └─────┴─────┘
Invariant: a stripe and a column cross in one cell, so each pair meets exactly once.
Cost: with m stripes of n cells a left row is sent and stored n times, a right row m times (formulas 2 and 6): state
and traffic grow with the square root of the units. It is here to be measured against, and for two streams whose
every pair has to be looked at.
Source: the join-matrix that BiStream (section 2) compares itself with; Squall, section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenkeel import hashing
from evenkeel.schemes.one_bucket import best_stripes
from evenkeel.streaming.strategies.base import FLAGS, PRIMARY, Exceptions, Options, Placements, RoutingTable
from evenkeel.types import Float64, Int64


@dataclass(frozen=True)
class Matrix:
    stripes: tuple[int, ...]
    """How many cells each stripe has."""
    inputs: tuple[str, str]
    version: int = 0
    strategy: str = "one_bucket"

    @property
    def units(self) -> int:
        return sum(self.stripes)

    @property
    def _starts(self) -> Int64:
        return np.asarray(np.cumsum(self.stripes) - np.array(self.stripes), dtype=np.int64)

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
        rows = np.arange(len(row))
        sizes = np.array(self.stripes)
        if input == self.inputs[0]:
            stripe = np.repeat(np.arange(len(sizes)), sizes)[np.mod(row, self.units)]
            copies = sizes[stripe]
            sent = np.repeat(rows, copies)
            offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
            unit = self._starts[stripe[sent]] + offset
        else:
            # Hashed again, so that equal rows of the two inputs are not in equal places of the matrix.
            again = hashing.rehash(row)
            sent = np.repeat(rows, len(sizes))
            offset = np.tile(np.arange(len(sizes)), len(rows))
            unit = (self._starts[None, :] + np.mod(again[:, None], sizes[None, :])).reshape(-1)
        yes = np.ones(len(sent), dtype=bool)
        return Placements(sent, unit, yes, yes, offset == 0)

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        first, rest = PRIMARY + 3, 3
        if input != self.inputs[0]:
            cell = f"pmod(xxhash64({row}), {{k}}L)"
            each = (
                f"({s} + cast({cell.format(k=k)} AS int)) * {FLAGS} + {rest if i else first}"
                for i, (s, k) in enumerate(zip(self._starts, self.stripes, strict=True))
            )
            return f"array({', '.join(each)})"
        cells = []
        for s, k in zip(self._starts, self.stripes, strict=True):
            codes = [(int(s) + i) * FLAGS + (rest if i else first) for i in range(k)]
            cells.append(f"array({', '.join(map(str, codes))})")
        stripe = np.repeat(np.arange(len(self.stripes)), self.stripes)
        cases = " ".join(f"WHEN {p} THEN {cells[g]}" for p, g in enumerate(stripe))
        return f"CASE pmod({row}, {self.units}L) {cases} END"

    def to_json(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "version": self.version, "stripes": list(self.stripes),
                "inputs": list(self.inputs)}  # fmt: skip


class OneBucket:
    name = "one_bucket"
    summary = "join-matrix: rows copied along stripes and columns; any condition"
    needs_equality = False
    together = False
    copies = True
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Options) -> RoutingTable:
        left, right = inputs
        return Matrix(tuple(int(k) for k in best_stripes(1.0, 1.0, units)), (left, right))

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        left, right = doc["inputs"]
        return Matrix(tuple(int(k) for k in doc["stripes"]), (left, right), int(doc["version"]))
