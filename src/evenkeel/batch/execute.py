"""A plan runs: route both sides, one exchange each, join inside the regions, reconcile what was copied.

    routed(left)  -- exchange by region --\
                                            sort-merge join in every region -- keep -- union -- result
    routed(right) -- exchange by region --/                                            |
    rows of preserved sides that were copied, and matched in none of their regions ----+
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.batch.reconcile import unmatched_copies
from evenkeel.local.base import REGION
from evenkeel.plan import TwoWay
from evenkeel.spark.arrow_join import arrow_pairs
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.exchange import RoutedInput, exchange, route
from evenkeel.types import SIDES, How, Side, kept, other, preserved

SPARK_HOW: dict[How, str] = {
    "inner": "inner",
    "cross": "inner",
    "left": "left",
    "right": "right",
    "full": "full",
    "left_semi": "left_semi",
    "left_anti": "left_anti",
}
SEMI = ("left_semi", "left_anti")


def execute(join: BoundJoin, plan: TwoWay) -> DataFrame:
    if plan.native:
        return join.project(spark_join(join))
    assert plan.chosen is not None
    if plan.chosen.scheme == "broadcast":
        return join.project(_broadcast(join, plan))
    return join.project(_routed(join, plan), _unpacked(join, plan))


def _unpacked(join: BoundJoin, plan: TwoWay) -> dict[str, str]:
    """The SQL of keys that were packed into the region column, by their name."""
    packing = plan.local.packing if plan.local is not None else None
    if packing is None:
        return {}
    (equi,), (kind,) = join.condition.equi, join.key_types
    return {equi.sql(s): f"cast({packing.key(REGION[s])} AS {kind.simpleString()})" for s in SIDES}


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
    layout, local = plan.chosen.layout, plan.local
    with ThreadPoolExecutor(2) as pool:  # Spark takes a while to analyse each
        sides = dict(zip(SIDES, pool.map(partial(_in_regions, join, plan, how), SIDES), strict=True))
    on = F.expr(local.on(join.condition))
    if local.operator == "arrow":
        # Rows that must be kept are answered for by reconciliation alone.
        pairs = arrow_pairs(join, sides, layout.workers).filter(on)
        return RegionJoin(sides["left"], sides["right"], pairs.filter("false") if how in SEMI else pairs)
    hinted = {s: sides[s].df.hint(local.operator) if s == _hinted(plan, how) else sides[s].df for s in SIDES}
    joined = hinted["left"].join(hinted["right"], on, SPARK_HOW[how])
    for side in SIDES:
        mine, theirs = sides[side], sides[other(side)]
        if side in copied_sides(plan, how) and how not in SEMI:
            joined = joined.filter(f"NOT (coalesce({mine.copies}, 1) > 1 AND {theirs.region} IS NULL)")
    return RegionJoin(sides["left"], sides["right"], joined)


def _in_regions(join: BoundJoin, plan: TwoWay, how: How, side: Side) -> RoutedInput:
    assert plan.chosen is not None and plan.local is not None
    layout, local = plan.chosen.layout, plan.local
    nulls = side in kept(how)
    copied = side in copied_sides(plan, how) and local.operator != "arrow"
    stable = plan.facts.stable_order[side]
    routed = route(join, side, layout, stable, nulls, local.hash_bits, copied, local.packing)
    if copied and how in SEMI:
        # Copies of these rows are answered for by reconciliation alone.
        routed = RoutedInput(routed.df.filter(f"{routed.copies} = 1"), side)
    return exchange(routed, layout, local, join, plan.tasks, copied)


def copied_sides(plan: TwoWay, how: How) -> tuple[Side, ...]:
    """The preserved sides of which some rows are copied: those need reconciling."""
    assert plan.chosen is not None and plan.local is not None
    layout, local = plan.chosen.layout, plan.local
    return tuple(s for s in SIDES if s in preserved(how) and (layout.replicates(s) or local.copies(s)))


def _hinted(plan: TwoWay, how: How) -> Side:
    """The side that Spark is told to build from; semi and anti joins can only build the right one."""
    assert plan.local is not None
    return "right" if how in SEMI else plan.local.build


def _routed(join: BoundJoin, plan: TwoWay) -> DataFrame:
    with ThreadPoolExecutor(2) as pool:
        rest = [pool.submit(unmatched_copies, join, plan, s) for s in copied_sides(plan, join.how)]
        joined = region_join(join, plan, join.how).joined
        return _union(join, joined, [r.result() for r in rest])


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
    if not rest:
        return joined
    wanted = join.columns("left") if join.how in SEMI else join.columns("left") + join.columns("right")
    out = joined.selectExpr(*wanted)
    for more in rest:
        out = out.unionByName(more, allowMissingColumns=True)
    return out
