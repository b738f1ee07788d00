"""The join inside the cells: every input in its one exchange, then hash joins on the cell and the keys.

    routed(R) -- exchange --\
    routed(S) -- exchange --- hash join on (cell, y) --\
    routed(T) -- exchange ------------------------------ hash join on (cell, z) -- clauses -- result

The first relation streams through hash tables of the others, so a result between two joins is never stored, sorted
or shuffled: that is what makes cyclic queries, such as triangles, bearable. A relation too large for a hash table in
its heaviest region is merged instead, which can spill.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.plan.join_order import newly_checkable
from evenkeel.plan.multi_way import MultiWay
from evenkeel.spark.multi_binding import BoundQuery
from evenkeel.spark.multi_exchange import cell_of, exchanged, routed

MOST_BUILT = 128 * 2**20
"""Bytes of a relation in its heaviest region up to which Spark is asked for a hash table."""


def join_cells(bound: BoundQuery, plan: MultiWay) -> DataFrame:
    """The joined rows with the number of their cell in `_cell`."""
    assert plan.chosen is not None and plan.order is not None
    layout = plan.chosen.layout
    sides = {
        i: exchanged(routed(bound, i, layout, plan.facts.stable_order[i]), i, layout) for i in plan.query.relations
    }
    first, *rest = plan.order.relations
    joined, out = [first], sides[first].withColumnRenamed(cell_of(first), "_cell")
    for relation in rest:
        on = f"_cell = {cell_of(relation)} AND {on_sql(plan, joined, relation)}"
        build = sides[relation].hint(_operator(plan, relation))
        # One number of the cell is kept: with two Spark would not see that the result is still placed by cell.
        out = out.join(build, F.expr(on), "inner").drop(cell_of(relation))
        joined.append(relation)
    return out


def on_sql(plan: MultiWay, joined: list[int], relation: int) -> str:
    """What a relation must satisfy to join those that have: equal attributes, and clauses that can be checked now."""
    query = plan.query
    parts = []
    for a in query.of(relation):
        attribute = query.attributes[a]
        partner = next((i for i in joined if i in attribute.columns), None)
        if partner is not None:
            sign = "=" if attribute.strict else "<=>"
            parts.append(f"`{attribute.columns[partner]}` {sign} `{attribute.columns[relation]}`")
    parts += [f"({c.sql})" for c in newly_checkable(query.clauses, joined, relation)]
    return " AND ".join(parts) or "true"


def _operator(plan: MultiWay, relation: int) -> str:
    assert plan.chosen is not None
    share = plan.chosen.layout.shipped[relation] / max(1.0, plan.chosen.shipped)
    rows = plan.chosen.heaviest * share
    return "shuffle_hash" if rows * plan.facts.row_bytes[relation] <= MOST_BUILT else "merge"
