"""A range of differences between an expression of the left input and one of the right.

    lower <= left - right <= upper        either bound may be missing, each may be strict

`abs(l.a - r.a) <= 5`, `l.ts BETWEEN r.ts - INTERVAL 5 MINUTES AND r.ts` and `2 * l.b < r.c` are all of this form.
It is monotone: as the left value grows, the right values that can match only move upward. So the matching cells of
a join matrix with sorted axes form a staircase, and whether a cell can match is seen from its corners alone.
The bounds serve to route rows; the text the user wrote is still what a pair is checked with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenkeel.types import Side

Sign = Literal[1, -1]
_OPPOSITE: dict[Sign, Sign] = {1: -1, -1: 1}


@dataclass(frozen=True, slots=True)
class Bound:
    """A sum of constants: SQL without columns, each with its sign. No terms is zero."""

    terms: tuple[tuple[Sign, str], ...] = ()
    strict: bool = False

    def negated(self) -> Bound:
        return Bound(tuple((_OPPOSITE[s], t) for s, t in self.terms), self.strict)


@dataclass(frozen=True, slots=True)
class Band:
    """Both sides are SQL over the bound column names."""

    left: str
    right: str
    lower: Bound | None
    upper: Bound | None
    text: str
    subtracts: bool = False
    """Whether the condition takes the difference itself (`l.a - r.a < 5`) or compares (`l.a < r.a + 5`)."""

    @property
    def kind(self) -> str:
        return "band" if self.lower is not None and self.upper is not None else "inequality"

    def sql(self, side: Side) -> str:
        return self.left if side == "left" else self.right


def merged(bands: list[Band]) -> tuple[Band, ...]:
    """Bands over the same pair of expressions become one, as far as each bound is given once."""
    out: list[Band] = []
    for band in bands:
        for i, other in enumerate(out):
            same = (other.left, other.right, other.subtracts) == (band.left, band.right, band.subtracts)
            free = (other.lower is None or band.lower is None) and (other.upper is None or band.upper is None)
            if same and free:
                out[i] = Band(
                    band.left,
                    band.right,
                    other.lower or band.lower,
                    other.upper or band.upper,
                    band.text if band.text == other.text else f"{other.text} AND {band.text}",
                    band.subtracts,
                )
                break
        else:
            out.append(band)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Span:
    """A band brought to numbers: `lo <= left - right <= hi` holds for every pair that matches, rounding included.

    `left` and `right` are SQL of type double that rises with the expression it stands for, over the bound column
    names. `slack` is the relative error that their arithmetic may have made.
    """

    left: str
    right: str
    lo: float
    hi: float
    slack: float
    text: str

    def sql(self, side: Side) -> str:
        return self.left if side == "left" else self.right

    @property
    def bounded(self) -> bool:
        return self.lo > float("-inf") and self.hi < float("inf")

    @property
    def binnable(self) -> bool:
        """Whether a row touches few bins: both bounds are known, and rounding is small against them."""
        return self.bounded and self.slack <= 2.0**-48

    @property
    def width(self) -> float:
        return self.hi - self.lo

    @property
    def kind(self) -> str:
        return "band" if self.bounded else "inequality"

    def reach_sql(self, side: Side) -> tuple[str, str]:
        """The lowest and the highest position of the other side that a row may match, rounding allowed for."""
        low, high = (self.lo, self.hi) if side == "right" else (-self.hi, -self.lo)
        return self._shifted(side, low, -1), self._shifted(side, high, 1)

    def _shifted(self, side: Side, by: float, sign: Sign) -> str:
        if by in (float("inf"), float("-inf")):
            return f"double('{'-' if by < 0 else ''}Infinity')"
        x = f"({self.sql(side)})"
        err = f"{sign * self.slack!r}D * (least(abs({x}), 1e300D) + {abs(by)!r}D)"
        return f"({x} + {by!r}D + {err})"
