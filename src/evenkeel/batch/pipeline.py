"""The same query as a pipeline of two-way joins, each by the two-way schemes.

What is known of an attribute in the inputs is scaled to the results between joins, so no join is run to plan the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import DataFrame

from evenkeel.batch.cells import on_sql
from evenkeel.batch.two_way import JoinPlan, draft
from evenkeel.plan import optimize
from evenkeel.plan.multi_way import MultiWay
from evenkeel.spark.binding import bind
from evenkeel.spark.multi_binding import BoundQuery
from evenkeel.stats import JoinStats, KeyGroups, SideStats
from evenkeel.types import Exact, How, Inexact


@dataclass(frozen=True, eq=False)
class Step:
    plan: JoinPlan
    joined: DataFrame


def pipeline(bound: BoundQuery, plan: MultiWay) -> list[Step]:
    """One step for every relation but the first."""
    assert plan.order is not None
    first, *rest = plan.order.relations
    joined, out, steps = [first], bound.frames[first], []
    for k, relation in enumerate(rest, start=1):
        on = on_sql(plan, joined, relation)
        how: How = "inner" if on != "true" else "cross"
        request = bind(out, bound.frames[relation], on if how == "inner" else None, how, ("", "_r"))
        drawn, explained = draft(request, how, "auto", plan.workers)
        made = JoinPlan(request, drawn, explained)
        stats = _stats(plan, joined, relation, plan.order.rows[k - 1])
        if stats is not None:
            made = JoinPlan(request, drawn, explained, optimize(replace(drawn, stats=stats)))
        out = made.execute()
        steps.append(Step(made, out))
        joined.append(relation)
    return steps


def _stats(plan: MultiWay, joined: list[int], relation: int, rows: float) -> JoinStats | None:
    """What the two-way schemes need to know, where one attribute alone joins: the keys of the result and the input."""
    query = plan.query
    by = [a for a in query.of(relation) if any(i in query.attributes[a].columns for i in joined)]
    if len(by) != 1 or not query.attributes[by[0]].strict:
        return None
    partner = next(i for i in joined if i in query.attributes[by[0]].columns)
    grown = rows / max(1.0, plan.groups[partner].total)
    left, right = _side(plan.groups[partner], by[0], grown), _side(plan.groups[relation], by[0], 1.0)
    return JoinStats(left, right)


def _side(groups: KeyGroups, attribute: int, grown: float) -> SideStats:
    keys, counts = groups.values(attribute)
    distinct = len(keys) + groups.light_values(attribute)
    return SideStats(
        Inexact(groups.total * grown), Exact(0.0), Inexact(distinct), keys, np.asarray(counts * grown, dtype=np.float64)
    )
