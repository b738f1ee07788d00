"""The contract of a scheme: it maps every row to regions so that each matching pair meets exactly once.

    scheme.fit(problem) -> Layout
    layout.route(side, batch)   the regions of rows, in NumPy
    layout.route_expr(side)     the same as SQL, for Spark

`key` is the 64-bit hash of the join key, NULL where the row can match nothing; `row` is a number
that spreads the rows of one key: a function of the row, so that a retried task repeats its choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from evenkeel.report import LoadReport
from evenkeel.stats import JoinStats
from evenkeel.types import Bool, How, Int64, Side


@dataclass(frozen=True)
class Problem:
    """All that a scheme may look at."""

    stats: JoinStats
    how: How
    workers: int
    has_equality: bool = True
    build: Side = "right"
    """The side that a broadcast would copy."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The routing columns of some rows."""

    key: Int64
    valid: Bool
    """False where the key is NULL."""
    row: Int64


@dataclass(frozen=True, eq=False)
class Routed:
    """Copy i is row `row[i]` sent to `region[i]`."""

    row: Int64
    region: Int64


@dataclass(frozen=True, eq=False)
class RouteExpr:
    """A route as Spark runs it: a table looked up by `key`, and a region for the rows.

    `table` has columns (h, slots, regions, copies), an entry for each copy of a key's rows; a row takes all entries
    of its key, and of each the region at `row mod slots`. `region` is SQL with the places {key}, {row} and, with a
    table, {hit}: the region that was found, or NULL.
    """

    region: str
    table: pa.Table | None = None


class Layout(Protocol):
    """A frozen value: where every row goes, and what that is predicted to cost."""

    @property
    def workers(self) -> int: ...

    @property
    def predicted(self) -> LoadReport | None: ...

    def route(self, side: Side, batch: Batch) -> Routed: ...

    def route_expr(self, side: Side) -> RouteExpr: ...

    def replicates(self, side: Side) -> bool:
        """Whether some row of this side is sent to more than one region."""
        ...


class Scheme(Protocol):
    name: str
    summary: str

    def fit(self, problem: Problem) -> Layout: ...


def spread(batch: Batch, workers: int) -> Int64:
    """By key hash where there is a key, else by row: NULL keys are spread, never piled up."""
    return np.mod(np.where(batch.valid, batch.key, batch.row), workers)


def spread_sql(workers: int) -> str:
    return f"cast(pmod(coalesce({{key}}, {{row}}), {workers}L) as int)"


TABLE_SCHEMA = pa.schema(
    [
        ("h", pa.int64()),
        ("slots", pa.int32()),
        ("regions", pa.list_(pa.int32())),
        ("copies", pa.int32()),
    ]
)
