"""The contract of a scheme: it maps every row to regions so that each matching pair meets exactly once.

    scheme.fit(problem) -> Layout
    layout.route(side, batch)   the regions of rows, in NumPy
    layout.route_expr(side)     the same as SQL, for Spark

`key` is the 64-bit hash of the join key, NULL where the row can match nothing; `row` is a number that spreads the
rows of one key by its lowest bits (`dealing.py`): a function of the row, so that a retried task repeats its choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from evenkeel import dealing
from evenkeel.report import LoadReport
from evenkeel.stats import JoinStats, RangeStats
from evenkeel.types import Bool, Float64, How, Int64, Side


@dataclass(frozen=True)
class Problem:
    """All that a scheme may look at."""

    stats: JoinStats
    how: How
    workers: int
    has_equality: bool = True
    build: Side = "right"
    """The side that a broadcast would copy."""
    ranges: RangeStats | None = None
    """The keys in order, where the condition has a range to route by."""
    thrift: float = 0.0
    """Rows that a second of planning has to save; 0 for a scheme that was asked for, which does its best."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The routing columns of some rows."""

    key: Int64
    valid: Bool
    """False where the key is NULL, or the position."""
    row: Int64
    x: Float64 | None = None
    """The position of the band; None where the condition has none."""


@dataclass(frozen=True, eq=False)
class Routed:
    """Copy i is row `row[i]` sent to `region[i]`."""

    row: Int64
    region: Int64


@dataclass(frozen=True, eq=False)
class Bounds:
    """Ascending keys (hash, x, tie) that cut an axis into ranges; a key at a bound belongs to the range above it."""

    hash: Int64 | None
    x: Float64
    tie: Int64
    """Cuts rows of one key apart, by a hash of their number; all zero where no key is cut."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def cuts_keys(self) -> bool:
        return bool(np.any(self.tie > 0))

    def find(self, batch: Batch, tie: Int64) -> Int64:
        """The range of each row: how many bounds are not above it."""
        x = np.zeros(len(batch.key)) if batch.x is None else batch.x
        slot = np.zeros(len(x), dtype=np.int64)
        for i in range(len(self)):
            above = (x > self.x[i]) | ((x == self.x[i]) & (tie >= self.tie[i]))
            if self.hash is not None:
                above = (batch.key > self.hash[i]) | ((batch.key == self.hash[i]) & above)
            slot += above
        return slot


@dataclass(frozen=True, eq=False)
class RouteExpr:
    """A route as Spark runs it.

    `region` is SQL with the places {key} and {row}; `explode(...)` in it copies the row. Two kinds of lookup go first:

    `table`   columns (h, slots, regions, copies), an entry for each copy of a key's rows; a row takes all entries of
              its key, and of each the region of its slot: {hit} in `region`, or NULL.
    `bounds`  the row's range among them picks the list of its regions from `places`: `_places` in `region`. A row
              whose key is NULL or whose list is empty takes `lone` instead.
    """

    region: str
    table: pa.Table | None = None
    bounds: Bounds | None = None
    places: tuple[tuple[int, ...], ...] = ()
    lone: str = ""
    run: int = 0
    """The logarithm of how many neighbouring rows of a key may go to one slot: to be read in a row again."""


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

    def planning(self, workers: int) -> float:
        """About how many seconds `fit` takes at the least, the statistics being there."""
        ...


def spread(batch: Batch, workers: int) -> Int64:
    """By key hash where there is a key, else by row: NULL keys are spread, never piled up."""
    return np.where(batch.valid, np.mod(batch.key, workers), dealing.slot(batch.row, workers))


def spread_sql(workers: int) -> str:
    """Never NULL, as Spark can see: it takes a remainder for something that may be."""
    return f"coalesce(cast(pmod({{key}}, {workers}L) as int), {dealing.slot_sql('{row}', workers)})"


TABLE_SCHEMA = pa.schema(
    [
        ("h", pa.int64()),
        ("slots", pa.int32()),
        ("regions", pa.list_(pa.int32())),
        ("copies", pa.int32()),
    ]
)
