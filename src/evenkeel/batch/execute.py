"""A plan runs: route both sides, one exchange each, join inside the regions, reconcile what was copied.

    routed(left)  -- exchange by region --\
                                            sort-merge join in every region -- keep -- union -- result
    routed(right) -- exchange by region --/                                            |
    rows of preserved sides that were copied, and matched in none of their regions ----+
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.batch.reconcile import unmatched_copies
from evenkeel.plan import TwoWay
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import RoutedInput, exchange, route
from evenkeel.types import SIDES, How, Side, other, preserved

SPARK_HOW: dict[How, str] = {
    "inner": "inner",
    "cross": "inner",
    "left": "left",
    "right": "right",
    "full": "full",
    "left_semi": "left_semi",
    "left_anti": "left_anti",
}


def execute(join: BoundJoin, plan: TwoWay) -> DataFrame:
    if plan.native:
        return join.project(spark_join(join))
    assert plan.chosen is not None
    if plan.chosen.scheme == "broadcast":
        return join.project(_broadcast(join, plan))
    return join.project(_routed(join, plan))


def spark_join(join: BoundJoin, left: DataFrame | None = None, right: DataFrame | None = None) -> DataFrame:
    """The join as Spark does it by itself."""
    left, right = left if left is not None else join.left, right if right is not None else join.right
    if not join.condition.equi and not join.condition.residual:
        return left.crossJoin(right)
    return left.join(right, F.expr(join_sql(join)), SPARK_HOW[join.how])


def join_sql(join: BoundJoin) -> str:
    parts = [f"{e.left} {'<=>' if e.null_safe else '='} {e.right}" for e in join.condition.equi]
    return " AND ".join([*parts, *(f"({t.sql})" for t in join.condition.residual)]) or "true"


@dataclass(frozen=True, eq=False)
class RegionJoin:
    """Both inputs in their regions, and their join there."""

    left: RoutedInput
    right: RoutedInput
    joined: DataFrame


def region_join(join: BoundJoin, plan: TwoWay, how: How) -> RegionJoin:
    """Join inside the regions, without the unmatched copies: those say nothing of the row they are a copy of."""
    assert plan.chosen is not None and plan.local is not None
    layout, kept = plan.chosen.layout, preserved(how)
    sides: dict[Side, RoutedInput] = {}
    for side in SIDES:
        nulls = side in kept and how != "left_semi"
        routed = route(join, side, layout, plan.facts.stable_order[side], nulls)
        copied = side in kept and layout.replicates(side)
        if copied and how in ("left_semi", "left_anti"):
            # Copies of these rows are answered for by reconciliation alone.
            routed = RoutedInput(routed.df.filter(F.col(routed.copies) == 1), side)
        sides[side] = exchange(routed, layout.workers, with_copies=copied)
    on = F.expr(plan.local.on(join.condition))
    joined = sides["left"].df.join(sides["right"].df.hint("merge"), on, SPARK_HOW[how])
    for side in SIDES:
        mine, theirs = sides[side], sides[other(side)]
        if mine.copies in mine.df.columns and how not in ("left_semi", "left_anti"):
            joined = joined.filter(F.expr(f"NOT (coalesce({mine.copies}, 1) > 1 AND {theirs.region} IS NULL)"))
    return RegionJoin(sides["left"], sides["right"], joined)


def _routed(join: BoundJoin, plan: TwoWay) -> DataFrame:
    assert plan.chosen is not None
    copied = [s for s in SIDES if s in preserved(join.how) and plan.chosen.layout.replicates(s)]
    return _union(join, region_join(join, plan, join.how).joined, [unmatched_copies(join, plan, s) for s in copied])


def _broadcast(join: BoundJoin, plan: TwoWay) -> DataFrame:
    """Spark's own broadcast join, and the preserved rows of the small side that matched nothing."""
    assert plan.chosen is not None and plan.problem is not None
    build = plan.problem.build
    kept = preserved(join.how)
    small = F.broadcast(join.side(build))
    left, right = (small, join.right) if build == "left" else (join.left, small)
    if build not in kept:
        return spark_join(join, left, right)
    how = "inner" if len(kept) == 1 else ("right" if build == "left" else "left")
    joined = left.join(right, F.expr(join_sql(join)), how)
    return _union(join, joined, [unmatched_copies(join, plan, build)])


def _union(join: BoundJoin, joined: DataFrame, rest: list[DataFrame]) -> DataFrame:
    if join.how in ("left_semi", "left_anti"):
        wanted = join.columns("left")
    else:
        wanted = join.columns("left") + join.columns("right")
    out = joined.select(*wanted)
    for more in rest:
        out = out.unionByName(more, allowMissingColumns=True)
    return out
