"""An equality between an expression of the left input and one of the right."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.types import Side


@dataclass(frozen=True, slots=True)
class Equi:
    """`left = right`, or `left <=> right` when null_safe. Both are SQL over the bound column names."""

    left: str
    right: str
    null_safe: bool
    text: str

    def sql(self, side: Side) -> str:
        return self.left if side == "left" else self.right
