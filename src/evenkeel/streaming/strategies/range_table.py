"""Tables that place rows by position: ranges of both inputs, each with the units whose regions it crosses.

Invariant: that of `schemes/ranges.py`: regions are disjoint rectangles that hold every cell that can match, so each
pair meets in one unit. Until there is a sample to cut by, a join matrix does the same for any condition.
A row without a position matches nothing; it is stored somewhere, by its content, for joins that show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evenkeel.schemes.ranges import TIE_SQL, RangeLayout, tie_of
from evenkeel.streaming.strategies.adaptive_one_bucket import AdaptiveOneBucket, Matrices
from evenkeel.streaming.strategies.base import FLAGS, PRIMARY, PROBE, STORE, Exceptions, Placements
from evenkeel.types import SIDES, Float64, Int64

Bound = tuple[float, int]
"""A position and, where rows of one position are cut apart, the tie from which on they are above."""


@dataclass(frozen=True)
class Band:
    lo: float
    hi: float
    slack: float = 0.0


@dataclass(frozen=True)
class RangeTable:
    units: int
    inputs: tuple[str, str]
    band: Band
    matrix: Matrices | None
    """What places rows while there are no ranges."""
    bounds: Mapping[str, tuple[Bound, ...]]
    places: Mapping[str, tuple[tuple[int, ...], ...]]
    """By input, of each range between bounds, its units."""
    version: int = 0
    strategy: str = "adaptive_equi_weight"

    @property
    def exceptions(self) -> Mapping[str, Exceptions]:
        return {}

    @property
    def replicates(self) -> bool:
        return True

    @property
    def base(self) -> None:
        return None

    @cached_property
    def _arrays(self) -> Mapping[str, tuple[Float64, Int64, Int64, Int64]]:
        """By input: bounds, ties, where the units of a range begin, the units."""
        out = {}
        for i in self.inputs:
            sizes = [len(p) for p in self.places[i]]
            starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            flat = np.array([u for p in self.places[i] for u in p], dtype=np.int64)
            x, tie = np.array([b[0] for b in self.bounds[i]]), np.array([b[1] for b in self.bounds[i]], dtype=np.int64)
            out[i] = x, tie, starts, flat
        return out

    def place(self, input: str, key: Int64, row: Int64, position: Float64 | None = None) -> Placements:
        if self.matrix is not None:
            return self.matrix.place(input, key, row, position)
        assert position is not None, "ranges need a band"
        x, tie, starts, flat = self._arrays[input]
        slot = np.searchsorted(x, position, side="right")
        cut = np.flatnonzero(tie > 0)
        if len(cut):
            ties = tie_of(row)
            for b in cut.tolist():
                slot -= (position == x[b]) & (ties < tie[b])
        nowhere = np.isnan(position)
        slot = np.where(nowhere, 0, slot)
        copies = np.where(nowhere, 0, starts[slot + 1] - starts[slot])
        alone = np.flatnonzero(copies == 0)
        sent = np.repeat(np.arange(len(position)), copies)
        offset = np.arange(len(sent)) - np.repeat(np.cumsum(copies) - copies, copies)
        units = flat[starts[slot[sent]] + offset] if len(sent) else np.empty(0, dtype=np.int64)
        rows = np.concatenate([sent, alone])
        yes = np.ones(len(rows), dtype=bool)
        first = np.concatenate([offset == 0, np.ones(len(alone), dtype=bool)])
        return Placements(rows, np.concatenate([units, np.mod(row[alone], self.units)]), yes, yes, first)

    def place_sql(self, input: str, key: str, row: str, position: str | None = None) -> str:
        if self.matrix is not None:
            return self.matrix.place_sql(input, key, row, position)
        assert position is not None, "ranges need a band"
        lone = f"array(cast(pmod({row}, {self.units}L) AS int) * {FLAGS} + {PRIMARY + STORE + PROBE})"

        def codes(at: int) -> str:
            units = self.places[input][at]
            listed = (u * FLAGS + STORE + PROBE + (0 if n else PRIMARY) for n, u in enumerate(units))
            return f"array({', '.join(map(str, listed))})" if units else lone

        def search(low: int, high: int) -> str:
            """The range of a row that is known to be between two of them."""
            if low == high:
                return codes(low)
            mid = (low + high) // 2
            x, tie = self.bounds[input][mid]
            above = f"{position} >= {x!r}D"
            if tie:
                above = f"({position} > {x!r}D OR ({position} = {x!r}D AND {TIE_SQL.format(row=row)} >= {tie}L))"
            return f"IF({above}, {search(mid + 1, high)}, {search(low, mid)})"

        return f"IF({position} IS NULL OR isnan({position}), {lone}, {search(0, len(self.places[input]) - 1)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy, "version": self.version, "units": self.units, "inputs": list(self.inputs),
            "band": [repr(self.band.lo), repr(self.band.hi), repr(self.band.slack)],
            "matrix": self.matrix.to_json() if self.matrix is not None else None,
            "bounds": {i: [[repr(x), t] for x, t in b] for i, b in self.bounds.items()},
            "places": {i: [list(p) for p in ps] for i, ps in self.places.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> RangeTable:
        left, right = doc["inputs"]
        matrix = AdaptiveOneBucket().from_json(doc["matrix"]) if doc["matrix"] is not None else None
        assert matrix is None or isinstance(matrix, Matrices)
        return cls(
            int(doc["units"]), (left, right), Band(*(float(b) for b in doc["band"])), matrix,
            {i: tuple((float(x), int(t)) for x, t in b) for i, b in doc["bounds"].items()},
            {i: tuple(tuple(int(u) for u in p) for p in ps) for i, ps in doc["places"].items()}, int(doc["version"]),
        )  # fmt: skip

    def with_layout(self, layout: RangeLayout, unit_of: Mapping[int, int]) -> RangeTable:
        """The next version, cut as the layout is, each region in its unit."""
        bounds, places = {}, {}
        for input, side in zip(self.inputs, SIDES, strict=True):
            b = layout.bounds[side]
            bounds[input] = tuple(zip(b.x.tolist(), b.tie.tolist(), strict=True))
            places[input] = tuple(tuple(sorted(unit_of[r] for r in p)) for p in layout.regions[side])
        return RangeTable(self.units, self.inputs, self.band, None, bounds, places, self.version + 1)
