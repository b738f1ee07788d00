"""Aggregates of a stream join: `ek.agg.sum("r.amount")` and its like, each over an expression of l and r."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    kind: Kind
    of: str | None = None


def count(of: str | None = None) -> Aggregate:
    """Pairs, or those where the expression is not NULL."""
    return Aggregate("count", of)


def sum(of: str) -> Aggregate:
    return Aggregate("sum", of)


def avg(of: str) -> Aggregate:
    return Aggregate("avg", of)


def min(of: str) -> Aggregate:
    return Aggregate("min", of)


def max(of: str) -> Aggregate:
    return Aggregate("max", of)
