"""Grids for hot keys and places for everything: the arithmetic of the heavy-light scheme.

A key with R left and S right rows may get a grid of a x b regions. Left rows are cut into a parts and
each part goes to the b regions of its row; right rows are cut into b parts and go down the columns:

             S part 0   S part 1   S part 2
    R part 0 [ region ] [ region ] [ region ]      a cell reads R/a + S/b rows
    R part 1 [ region ] [ region ] [ region ]      and gives R*S / (a*b) pairs

HyperCube (Streaming HyperCube, section 2.2) sets a : b = R : S and a*b in proportion to the key's output,
as real numbers. Here they are integers, found while packing: of the grids that still fit under a ceiling,
the one that ships least. So no worker is wasted on rounding, and a key that fits whole stays whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.report import weight
from evenkeel.types import Float64, Int64

FEW_CELLS = 64
"""Grids of up to this many cells are looked at first."""
FINER = 4
"""Cells that cost next to nothing are taken up to this many times those that are needed: each is a row in a table."""


@dataclass(frozen=True, slots=True)
class Grid:
    """a parts of the left by b parts of the right."""

    a: int
    b: int

    @property
    def cells(self) -> int:
        return self.a * self.b

    def cell_rows(self, left: float, right: float) -> float:
        return left / self.a + right / self.b


@dataclass(frozen=True, eq=False)
class Shapes:
    """All grids of at most `workers` cells within the given limits, by their cells: about workers * log(workers)."""

    a: Int64
    b: Int64
    cells: Int64
    spare: float
    """Rows that a key may ship more than it must, for finer cells."""

    @classmethod
    def within(cls, workers: int, most_a: int, most_b: int, spare: float) -> Shapes:
        a = np.arange(1, min(workers, most_a) + 1)
        widest = np.minimum(workers // a, most_b)
        a, b = np.repeat(a, widest), np.concatenate([np.arange(1, n + 1) for n in widest])
        order = np.argsort(a * b, kind="stable")
        return cls(a[order], b[order], (a * b)[order], spare)

    def best(self, left: float, right: float, out: float, loads: Float64, ceiling: float) -> tuple[Grid, float]:
        """The grid that ships least among those that fit under the ceiling, with the rows it ships.

        A grid of n cells ships at least 2 * sqrt(left * right * n) rows, so larger ones need not be looked at once
        that is more than the best so far ships.
        """
        most = FEW_CELLS
        while True:
            end = int(np.searchsorted(self.cells, most, side="right"))
            found, fits = self._best(left, right, out, loads, ceiling, end)
            if end == len(self.cells) or (fits and 2 * np.sqrt(left * right * most) > found[1] + self.spare):
                return found
            most *= 4

    def _best(
        self, left: float, right: float, out: float, loads: Float64, ceiling: float, end: int
    ) -> tuple[tuple[Grid, float], bool]:
        """The best of the first grids, and whether it fits.

        A grid of n cells goes to the n lightest regions; `loads` are ascending. Where none fits, the one that
        ends lowest. Where finer cells cost next to nothing they are taken: a wrong estimate of one key is then
        shared by many regions.
        """
        possible = (self.a[:end] <= max(1.0, np.ceil(left))) & (self.b[:end] <= max(1.0, np.ceil(right)))
        a, b, cells = (x[:end][possible] for x in (self.a, self.b, self.cells))
        shipped = left * b + right * a
        top = loads[cells - 1] + weight(left / a + right / b, out / cells)
        fits = np.flatnonzero(top <= ceiling)
        if not len(fits):
            at = np.lexsort((shipped, top))[0]
        else:
            least = fits[np.argmin(shipped[fits])]
            cheap = fits[(shipped[fits] <= shipped[least] + self.spare) & (cells[fits] <= FINER * cells[least])]
            at = cheap[np.lexsort((shipped[cheap], -cells[cheap]))[0]]
        return (Grid(int(a[at]), int(b[at])), float(shipped[at])), bool(len(fits))
