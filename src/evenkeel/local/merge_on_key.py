"""Sort and merge by the region, the key's hash and the key: a pair that comes up is a pair that matches.

Sorting compares keys where hashes tie, but no pair costs a comparison, so this is for joins that are mostly
output. Measured, 0.5M rows in and 690M pairs out: 4.1 s of CPU against 5.8 s for merging on the hash
(docs/adr/0003).
"""

from __future__ import annotations

from evenkeel.conditions import Condition
from evenkeel.local.base import SAME_REGION, Merging, conjunction


class MergeOnKey(Merging):
    name = "merge_on_key"
    summary = "sorted by the key's hash and the key: for joins that are mostly output"

    def on(self, condition: Condition) -> str:
        keys = (f"{e.left} {'<=>' if e.null_safe else '='} {e.right}" for e in condition.equi)
        return conjunction(SAME_REGION, *keys, condition.residual_sql)
