"""A local join finds the pairs inside a region; it runs as Spark's own sort-merge join.

It is described by the condition that joins two routed inputs. `_l_region` and `_r_region` number the region and,
above it, carry bits of the key's hash, so that one integer compare settles most of the sorting.
"""

from __future__ import annotations

from typing import Protocol

from evenkeel.conditions import Condition


class LocalJoin(Protocol):
    name: str
    summary: str

    def on(self, condition: Condition) -> str:
        """The SQL that two rows of one region must satisfy."""
        ...


SAME_REGION = "_l_region = _r_region"


def conjunction(*parts: str | None) -> str:
    return " AND ".join(f"({p})" for p in parts if p)
