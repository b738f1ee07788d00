"""A local join finds the pairs inside a region; it runs as one of Spark's own joins, or in Arrow.

It is described by what it adds to the routed inputs and by the condition that joins them. `_l_region` and
`_r_region` number the region; for joins that merge by key the hash bits above it settle most of the sorting.
"""

from __future__ import annotations

from typing import Literal, Protocol

from evenkeel.conditions import Condition
from evenkeel.types import Side

Operator = Literal["merge", "shuffle_hash", "arrow"]
"""Spark's hint for the join inside a region: sort-merge can spill to disk, hashing holds one side in memory. In Arrow
the pairs are found outside Spark's operators."""


NUMBER_BITS = 31
"""What a region's number and the hash bits above it fit into: Spark shuffles by an INT."""


class Packing(Protocol):
    """How one number takes the place of a row's key and of its region; all of it as SQL."""

    @property
    def exact(self) -> bool:
        """Whether the number that rows are merged by differs wherever their keys do."""
        ...

    def pack(self, key: str, region: str) -> str: ...

    def number(self, packed: str) -> str:
        """The number that rows are shuffled and merged by: modulo the number of regions it is the region."""
        ...

    def key(self, packed: str) -> str: ...


class LocalJoin(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def hash_bits(self) -> bool:
        """Whether the region column carries bits of the key's hash."""
        ...

    @property
    def packing(self) -> Packing | None:
        """How the key is shipped in the region column, if it is."""
        ...

    @property
    def operator(self) -> Operator: ...

    @property
    def build(self) -> Side:
        """The side that hashing holds in memory."""
        ...

    def columns(self, side: Side, condition: Condition) -> dict[str, str]:
        """What to add to a side once it is in its region: SQL by name; `explode(...)` copies the row."""
        ...

    def copies(self, side: Side) -> bool:
        """Whether `columns` copies rows of this side."""
        ...

    def above(self, side: Side) -> str | None:
        """One of `columns`, a number that is to be part of the region's own: then they are added before the shuffle."""
        ...

    def on(self, condition: Condition) -> str:
        """The SQL that two rows of one region must satisfy."""
        ...


class Merging:
    """What local joins that merge by key have in common."""

    hash_bits = True
    packing: Packing | None = None
    operator: Operator = "merge"
    build: Side = "right"

    def columns(self, side: Side, condition: Condition) -> dict[str, str]:
        return {}

    def copies(self, side: Side) -> bool:
        return False

    def above(self, side: Side) -> str | None:
        return None


REGION: dict[Side, str] = {"left": "_l_region", "right": "_r_region"}
SAME_REGION = f"{REGION['left']} = {REGION['right']}"


def long_sql(value: int) -> str:
    return f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"


def conjunction(*parts: str | None) -> str:
    return " AND ".join(f"({p})" for p in parts if p)


def same_keys(condition: Condition) -> list[str]:
    """The equalities, written without '=', which Spark would take as keys to sort or hash by."""
    return [same_values(e.left, e.right, e.null_safe) for e in condition.equi]


def same_values(left: str, right: str, null_safe: bool) -> str:
    same = f"{left} >= {right} AND {left} <= {right}"
    return f"({same}) OR ({left} IS NULL AND {right} IS NULL)" if null_safe else same
