"""Bins: inside a region the band becomes an equality of bins.

A row of one side is in the bin that holds its position; a row of the other is copied to every bin its band touches.

    x -> floor(x / w)          y -> floor((y + lo) / w) .. floor((y + hi) / w)          (lo <= x - y <= hi)

Invariant: x is in one bin, so a pair meets in one bin at the most, and a pair that matches meets in that of x. Bins
are numbered with the hash of the equalities added, and then taken modulo what fits into 31 bits, once: the copies of a
row are consecutive numbers, fewer than the modulus, so they stay apart.
Cost: a row is copied width / w + 1 times and compared with the rows of w + width positions: narrow bins copy, wide
bins compare. Every region has its own w, chosen from the keys (`plan/bin_width.py`).
Bins are numbered after the shuffle, so that no copy is shipped; or before it, as part of the region's number, so that
regions are sorted by that one number (radix sort) and pairs are read in sequence: dearer to ship, cheaper to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenkeel.conditions import Condition
from evenkeel.local.base import SAME_REGION, Operator, conjunction, same_keys
from evenkeel.types import Side, other

MODULUS = 2**31 - 1


@dataclass(frozen=True)
class Bins:
    widths: Sequence[float] = (1.0,)
    """The width of a bin in each region."""
    spread: Side = "right"
    """The side whose rows are copied to all bins that they may match."""
    before: bool = False
    """Whether bins are numbered before the shuffle, in the region's column, and merged instead of hashed."""
    extra: Sequence[float] = ()
    """With `before`, how many copies are shipped to each region beside the rows themselves."""
    name: ClassVar[str] = "bins"
    summary: ClassVar[str] = "an equality of bins, the band checked in each: for bands"
    hash_bits: ClassVar[bool] = False
    packing: ClassVar[None] = None

    @property
    def operator(self) -> Operator:
        return "merge" if self.before else "shuffle_hash"

    @property
    def build(self) -> Side:
        return other(self.spread)

    def copies(self, side: Side) -> bool:
        return side == self.spread

    def columns(self, side: Side, condition: Condition) -> dict[str, str]:
        span, mine = condition.spans[0], f"_{side[0]}"
        x, width = f"({span.sql(side)})", self._width(f"{mine}_region")
        if side != self.spread:
            return {f"{mine}_bin": self._number(_bin(x, width), side, condition)}
        low, high = span.reach_sql(side)
        # A row without a position matches nothing, but may have to be kept: explode_outer.
        return {
            f"{mine}_run": f"explode_outer(sequence({_bin(low, width)}, {_bin(high, width)}))",
            f"{mine}_bin": self._number(f"{mine}_run", side, condition),
        }

    def above(self, side: Side) -> str | None:
        return f"_{side[0]}_bin" if self.before else None

    def on(self, condition: Condition) -> str:
        same_bin = None if self.before else "_l_bin = _r_bin"
        # Spark sorts by the bin first, which tells more rows apart than the region, of which a task has one.
        return conjunction(same_bin, SAME_REGION, *same_keys(condition), condition.residual_sql)

    def _number(self, bin_: str, side: Side, condition: Condition) -> str:
        """The bin, moved by the hash of the equalities. `before` the shuffle, the region's number takes the modulus."""
        number = bin_
        if condition.equi:
            hashed = f"xxhash64({', '.join(e.sql(side) for e in condition.equi)})"
            number = f"{bin_} + pmod({hashed}, {MODULUS}L)"
        if not self.before:
            number = f"cast(pmod({number}, {MODULUS}L) AS int)"
        # Never NULL, so that Spark need not test for it before the shuffle; a row without a bin has one of its side.
        return f"coalesce({number}, {-1 if side == 'left' else -2})"

    def _width(self, region: str) -> str:
        if len(set(self.widths)) == 1:
            return f"{self.widths[0]!r}D"
        return f"array({', '.join(f'{w!r}D' for w in self.widths)})[{region}]"


def _bin(x: str, width: str) -> str:
    """The half keeps whole numbers clear of the edges of bins; positions beyond any bigint share the outermost bin."""
    return f"floor(greatest(least(({x} + 0.5D) / {width}, 4e18D), -4e18D))"
