"""Every pair of a region is checked: for conditions that nothing is known of.

Spark's sort-merge join on the region alone: its right rows are buffered (and spilled if need be), and each left row
runs through them. Cost: rows of the left times rows of the right, in generated code.
"""

from __future__ import annotations

from evenkeel.conditions import Condition
from evenkeel.local.base import SAME_REGION, Merging, conjunction, same_keys


class NestedLoop(Merging):
    name = "nested_loop"
    summary = "every pair of a region is checked"
    hash_bits = False

    def on(self, condition: Condition) -> str:
        return conjunction(SAME_REGION, *same_keys(condition), condition.residual_sql)
