"""Several inequalities: the pairs of a region are found in Arrow, by sorting instead of by trying each.

`l.a < r.a AND l.b > r.b` has no key to merge by and no band to bin by, and a nested loop is quadratic. DuckDB's IEJoin
(Khayyat et al., VLDB 2015) sorts by both columns and finds the pairs with a bitmap: n log n and the output. It gets
positions and row numbers alone; the rows are put together from its pairs batch by batch, and Spark checks the
condition as the user wrote it. Unmatched rows are reconciled, as if every row had been copied.
Cost: rows go to Python and back, about 0.2 us a value, and the input of a region is held in memory.
"""

from __future__ import annotations

from evenkeel.conditions import Condition
from evenkeel.local.base import Merging, Operator, conjunction, same_keys
from evenkeel.types import Side


class Inequalities(Merging):
    name = "inequalities"
    summary = "sorted by both columns in Arrow: for two or more inequalities"
    hash_bits = False
    operator: Operator = "arrow"

    def copies(self, side: Side) -> bool:
        return True

    def on(self, condition: Condition) -> str:
        return conjunction(*same_keys(condition), condition.residual_sql) or "true"
