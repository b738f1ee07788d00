"""A join condition: a conjunction of equalities and other predicates, bound to the inputs' columns.

Columns are bound by position: column i of the left input is `_l{i}`, of the right `_r{i}`.
No name of a user's can clash with another then, not even in a self-join.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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

    @property
    def kind(self) -> str:
        if not self.equi and not self.residual:
            return "cross"
        if not self.equi:
            return "theta"
        return "equi" if not self.residual else "equi + residual"

    @property
    def residual_sql(self) -> str | None:
        return " AND ".join(f"({t.sql})" for t in self.residual) or None
