"""Aggregates of a stream join: `ek.agg.sum("r.amount")` and its like, each over an expression of l and r.

With `distinct=True` equal values of a group count once in every window (`within=ek.tumbling(...)`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    kind: Kind
    of: str | None = None
    distinct: bool = False


def count(of: str | None = None, *, distinct: bool = False) -> Aggregate:
    """Pairs, or those where the expression is not NULL; `distinct` takes an expression."""
    return Aggregate("count", of, distinct and of is not None)


def sum(of: str, *, distinct: bool = False) -> Aggregate:
    return Aggregate("sum", of, distinct)


def avg(of: str, *, distinct: bool = False) -> Aggregate:
    return Aggregate("avg", of, distinct)


def min(of: str) -> Aggregate:
    return Aggregate("min", of)


def max(of: str) -> Aggregate:
    return Aggregate("max", of)
