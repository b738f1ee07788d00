"""`ek.plan_multi` and `ek.multi_join`: bind the request, sample the keys, optimize, and run it on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from html import escape

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.batch.cells import join_cells
from evenkeel.batch.pipeline import Step, pipeline
from evenkeel.batch.two_way import broadcast_limit, default_workers
from evenkeel.plan.explain_multi import explain_multi
from evenkeel.plan.multi_way import MultiFacts, MultiWay, optimize_multi
from evenkeel.report import LoadReport
from evenkeel.schemes.hypercube import CubeLayout
from evenkeel.spark.inputs import explain_text, keeps_order, row_bytes
from evenkeel.spark.key_samples import sample_keys, value_labels
from evenkeel.spark.metrics import tagged, task_seconds
from evenkeel.spark.multi_binding import BoundQuery, bind_multi
from evenkeel.spark.multi_exchange import cell_of, routed
from evenkeel.types import parse_cube, parse_workers

On = str | Sequence[str] | None


def plan_multi(
    inputs: dict[str, DataFrame],
    on: On = None,
    *,
    scheme: str = "auto",
    workers: int | None = None,
    cross: bool = False,
) -> MultiJoinPlan:
    """Plan a join of several DataFrames in one shuffle, without running it. Reads the join keys, or a sample of them.

    See `multi_join` for the parameters.
    """
    asked = parse_cube(scheme)
    count = None if workers is None else parse_workers(workers)
    bound = bind_multi(inputs, on, cross)
    spark = bound.frames[0].sparkSession
    explained = tuple(explain_text(df) for df in bound.frames)
    facts = MultiFacts(
        tuple(row_bytes(df.schema) for df in bound.frames),
        tuple(keeps_order(text) for text in explained),
        broadcast_limit(spark),
    )
    groups, seconds = sample_keys(bound, explained)
    draft = MultiWay(bound.query, count or default_workers(spark), asked, facts, groups, seconds)
    return MultiJoinPlan(bound, optimize_multi(draft))


def multi_join(
    inputs: dict[str, DataFrame],
    on: On = None,
    *,
    scheme: str = "auto",
    workers: int | None = None,
    cross: bool = False,
) -> DataFrame:
    """Join several DataFrames at once; each is shuffled once, and no result between two joins is shuffled at all.

    inputs    a name for every DataFrame: {"R": r, "S": s, "T": t}
    on        a condition over these names, "R.y = S.y AND S.z = T.z AND T.t < R.x", or the name, or a list of names,
              of columns that all inputs have
    scheme    auto, hash, random, hybrid or per_value; auto also weighs a pipeline of two-way joins
    workers   how many regions to balance over; Spark's number of shuffle partitions if not given
    cross     whether an input that no condition connects with the others is meant to be

    Result columns keep their names; a name that several inputs have is written input_column.
    """
    return plan_multi(inputs, on, scheme=scheme, workers=workers, cross=cross).execute()


class MultiJoinPlan:
    """A planned multi-way join: look at it with explain(), run it with execute(), weigh it with measure()."""

    def __init__(self, bound: BoundQuery, tree: MultiWay) -> None:
        self._bound = bound
        self.tree = tree

    @property
    def scheme(self) -> str:
        """The scheme that was chosen; `pipeline` for a chain of two-way joins."""
        return self.tree.scheme

    @property
    def layout(self) -> CubeLayout | None:
        """Where every row goes; None for a pipeline of two-way joins."""
        return None if self.tree.chosen is None else self.tree.chosen.layout

    @property
    def predicted(self) -> LoadReport:
        """The rows of every region, as the statistics foretell them."""
        plan = self.tree
        assert plan.order is not None
        if plan.chosen is not None:
            report = plan.chosen.layout.predicted
            return replace(report, rows_out=np.full(plan.workers, plan.order.result / plan.workers))
        assert plan.pipeline is not None
        total = float(sum(g.total for g in plan.groups))
        rows = np.full(plan.workers, plan.pipeline.shipped / plan.workers)
        out = np.full(plan.workers, plan.order.result / plan.workers)
        return LoadReport(rows, out, total, None, "predicted, pipeline", plan.order.intermediate)

    @property
    def replication(self) -> float:
        """Rows shipped / rows read, as predicted."""
        return self.predicted.replication

    @cached_property
    def _named(self) -> MultiWay:
        """The plan with names for the hot values."""
        labels = [value_labels(self._bound, i) for i in self.tree.query.relations]
        groups = tuple(replace(g, labels=names) for g, names in zip(self.tree.groups, labels, strict=True))
        return replace(self.tree, groups=groups)

    def explain(self) -> str:
        """The query, what is known of it, the cubes that were considered, what was chosen and why."""
        return explain_multi(self._named, self.predicted)

    @cached_property
    def _steps(self) -> list[Step]:
        return pipeline(self._bound, self.tree)

    def execute(self) -> DataFrame:
        """The result, lazily."""
        if self.tree.chosen is None:
            return self._bound.project(self._steps[-1].joined)
        return self._bound.project(join_cells(self._bound, self.tree))

    def measure(self, *, run: bool = True) -> LoadReport:
        """The load of every region as it is.

        Runs the join, counts rows in and out of every region, and times its task where Spark's UI is on. With
        run=False only the rows that arrive are counted, and no result is made; those between two joins of a pipeline
        are made all the same.
        """
        if self.tree.chosen is None:
            return self._measure_pipeline(run)
        layout, spark = self.tree.chosen.layout, self._bound.frames[0].sparkSession
        rows_in = np.zeros(layout.workers)
        for i in self.tree.query.relations:
            sent = routed(self._bound, i, layout, self.tree.facts.stable_order[i])
            rows_in += _by_region(sent, cell_of(i), layout.workers)
        total = float(sum(df.count() for df in self._bound.frames))
        rows_out, seconds = np.zeros(layout.workers), None
        if run:
            with tagged(spark) as tag:
                rows_out = _by_region(join_cells(self._bound, self.tree), "_cell", layout.workers)
                seconds = task_seconds(spark, tag, layout.workers)
        return LoadReport(rows_in, rows_out, total, seconds, f"measured, {self.scheme}")

    def _measure_pipeline(self, run: bool) -> LoadReport:
        """Region k of one join and region k of the next are one worker's: their rows are added up."""
        reports = [s.plan.measure(run=run) for s in self._steps]
        total = float(sum(df.count() for df in self._bound.frames))
        between = float(sum(r.rows_out.sum() for r in reports[:-1]))
        rows_in = np.sum([r.rows_in for r in reports], axis=0)
        return LoadReport(rows_in, reports[-1].rows_out, total, None, "measured, pipeline", between)

    def as_pipeline(self) -> MultiJoinPlan:
        """The same query as a chain of two-way joins, whatever was chosen: to be measured against."""
        return MultiJoinPlan(self._bound, replace(self.tree, chosen=None))

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.explain())}</pre>{self.predicted._repr_html_()}"


def _by_region(df: DataFrame, cell: str, workers: int) -> np.ndarray:
    counted = df.groupBy(F.expr(f"pmod({cell}, {workers})").alias("region")).count().toArrow()
    out = np.zeros(workers)
    out[counted["region"].to_numpy()] = counted["count"].to_numpy()
    return out
