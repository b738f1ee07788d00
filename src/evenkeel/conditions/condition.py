"""A join condition: a conjunction of equalities and other predicates, bound to the inputs' columns.

Columns are bound by position: column i of the left input is `_l{i}`, of the right `_r{i}`.
No name of a user's can clash with another then, not even in a self-join.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from evenkeel.conditions.band import Band, Span
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.theta import Theta
from evenkeel.types import Side


def bound(side: Side, index: int) -> str:
    return f"_{side[0]}{index}"


@dataclass(frozen=True, slots=True)
class Condition:
    text: str
    equi: tuple[Equi, ...] = ()
    residual: tuple[Theta, ...] = ()
    using: tuple[str, ...] = ()
    """The column names of `on`, when it was a list of names: each appears once in the result."""
    columns: dict[Side, tuple[int, ...]] = field(default_factory=lambda: {"left": (), "right": ()})
    """Which columns of each input the condition reads."""

    bands: tuple[Band, ...] = ()
    """What the residual says of ranges, as far as it was understood."""
    spans: tuple[Span, ...] = ()
    """The bands in numbers, once the types of the inputs are known; the one to route by comes first."""

    @property
    def kind(self) -> str:
        if not self.equi and not self.residual:
            return "cross"
        parts = ["equi"] * bool(self.equi) + [s.kind for s in self.spans]
        if len(self.residual) > 0 and not self.spans:
            parts.append("residual" if self.equi else "theta")
        return " + ".join(dict.fromkeys(parts))

    @property
    def monotone(self) -> bool:
        """Whether matching cells of a join matrix with sorted axes form a staircase: see `Band`."""
        return bool(self.equi or self.spans)

    @property
    def residual_sql(self) -> str | None:
        return " AND ".join(f"({t.sql})" for t in self.residual) or None
