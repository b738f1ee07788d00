"""Any other predicate of a pair of rows: it is checked where the pair meets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theta:
    """A boolean SQL expression over the bound column names."""

    sql: str
    text: str
    equality: bool = False
    """Whether Spark joins by it, though equal values may differ in hash, as under a collation."""
