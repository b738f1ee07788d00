"""The contract of a hypercube scheme, and what it is fitted to.

    scheme.fit(problem) -> CubeLayout

A cube has a dimension for an attribute that several relations hash by, and one of its own for a relation that is
spread row by row. A row is placed along the dimensions of its relation and copied along the others, so any
combination of matching rows shares exactly one cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenkeel.conditions import Query
from evenkeel.schemes.hypercube.layout import CubeLayout
from evenkeel.stats import KeyGroups


@dataclass(frozen=True, eq=False)
class CubeProblem:
    """All that a scheme may look at."""

    query: Query
    groups: tuple[KeyGroups, ...]
    """The rows of each relation, by their join values."""
    workers: int

    @property
    def input_rows(self) -> float:
        return float(np.sum([g.total for g in self.groups]))


class CubeScheme(Protocol):
    name: str
    summary: str

    def fit(self, problem: CubeProblem) -> CubeLayout: ...
