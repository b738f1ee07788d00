"""The join inside the cells: every input in its one exchange, then hash joins on the cell and the keys.

    routed(R) -- exchange --\
    routed(S) -- exchange --- hash join on (cell, y) --\
    routed(T) -- exchange ------------------------------ hash join on (cell, z) -- clauses -- result

The first relation streams through hash tables of the others, so a result between two joins is never stored, sorted
or shuffled: that is what makes cyclic queries, such as triangles, bearable. A relation too large for a hash table in
its heaviest region is merged instead, which can spill; so are those after the third, because Spark gives every hash
table at least one page, and a task has four to sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.local.base import same_values
from evenkeel.plan.join_order import newly_checkable
from evenkeel.plan.multi_way import MultiWay
from evenkeel.spark.multi_binding import BoundQuery
from evenkeel.spark.multi_exchange import cell_of, exchanged, routed

_SMALL = (T.ByteType, T.ShortType, T.IntegerType)
MOST_BUILT = 128 * 2**20
"""Bytes of a relation in its heaviest region up to which Spark is asked for a hash table."""
MOST_TABLES = 3
"""Hash tables in one task. Each takes a page that cannot be spilled, and a task has 8 to 16 pages, half of them where
cached data fill their share of the memory: so many leave one for what is merged, which can spill."""


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
        operator = _operator(plan, relation, len(joined))
        packed = operator == "shuffle_hash" and not _fits_a_long(bound, plan, joined, relation)
        on = f"_cell = {cell_of(relation)} AND {on_sql(plan, joined, relation, packed)}"
        build = sides[relation].hint(operator)
        # One number of the cell is kept: with two Spark would not see that the result is still placed by cell.
        out = out.join(build, F.expr(on), "inner").drop(cell_of(relation))
        joined.append(relation)
    return out


def on_sql(plan: MultiWay, joined: Sequence[int], relation: int, packed: bool = False) -> str:
    """What a relation must satisfy to join those that have: equal attributes, and clauses that can be checked now.

    Packed, a 32-bit hash of all keys is the one key beside the cell, so that Spark's hash table is the fast one for
    a 64-bit number; the keys themselves are compared without '=', or Spark would take them as keys too.
    """
    pairs = shared_keys(plan, joined, relation)
    parts = []
    if packed:
        left, right = (", ".join(f"`{p[k]}`" for p in pairs) for k in (0, 1))
        parts.append(f"hash({left}) = hash({right})")
    for one, two, strict in pairs:
        if packed:
            parts.append(f"({same_values(f'`{one}`', f'`{two}`', not strict)})")
        else:
            parts.append(f"`{one}` {'=' if strict else '<=>'} `{two}`")
    parts += [f"({c.sql})" for c in newly_checkable(plan.query.clauses, joined, relation)]
    return " AND ".join(parts) or "true"


def shared_keys(plan: MultiWay, joined: Sequence[int], relation: int) -> list[tuple[str, str, bool]]:
    """The columns of those that have joined and of the relation that must be equal, and whether NULL never is."""
    pairs = []
    for a in plan.query.of(relation):
        attribute = plan.query.attributes[a]
        partner = next((i for i in joined if i in attribute.columns), None)
        if partner is not None:
            pairs.append((attribute.columns[partner], attribute.columns[relation], attribute.strict))
    return pairs


def _fits_a_long(bound: BoundQuery, plan: MultiWay, joined: Sequence[int], relation: int) -> bool:
    """Whether the keys fit into 64 bits together with the cell; no keys at all do."""
    pairs = shared_keys(plan, joined, relation)
    kinds = [bound.frames[relation].schema[two].dataType for _, two, _ in pairs]
    return not pairs or (len(pairs) == 1 and pairs[0][2] and isinstance(kinds[0], _SMALL))


def _operator(plan: MultiWay, relation: int, tables: int) -> str:
    assert plan.chosen is not None
    size = plan.chosen.layout.largest[relation] * plan.facts.row_bytes[relation]
    return "shuffle_hash" if size <= MOST_BUILT and tables <= MOST_TABLES else "merge"
