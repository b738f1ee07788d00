"""Broadcast: the small side goes to every region, the large side stays where it is.

Invariant: a row of the large side is in one region, a row of the small side in all: a pair meets once.
Cost: p copies of the small side, no shuffle of the large one; the output of a region follows the rows it
happens to hold. Spark's own broadcast join runs it; rows of a small side that must be kept when nothing
matches them (right and full joins) are reconciled afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel import dealing
from evenkeel.report import LoadReport
from evenkeel.schemes.base import Batch, Layout, Problem, Routed, RouteExpr
from evenkeel.schemes.output import output_rows
from evenkeel.types import Side


@dataclass(frozen=True, eq=False)
class BroadcastLayout:
    workers: int
    build: Side
    predicted: LoadReport | None = None

    def route(self, side: Side, batch: Batch) -> Routed:
        rows = np.arange(len(batch.key))
        if side != self.build:
            return Routed(rows, dealing.slot(batch.row, self.workers))
        return Routed(np.repeat(rows, self.workers), np.tile(np.arange(self.workers), len(rows)))

    def route_expr(self, side: Side) -> RouteExpr:
        if side != self.build:
            return RouteExpr(dealing.slot_sql("{row}", self.workers))
        return RouteExpr(f"explode_outer(sequence(0, {self.workers - 1}))")

    def replicates(self, side: Side) -> bool:
        return side == self.build and self.workers > 1


class Broadcast:
    name = "broadcast"
    summary = "the small side everywhere, the large side not moved"

    def planning(self, workers: int) -> float:
        return 0.0

    def fit(self, problem: Problem) -> Layout:
        stats, p = problem.stats, problem.workers
        small = stats.of(problem.build).row_count
        _, left, right = stats.known_keys()
        tail_out = stats.tail(left, right)[2]
        pairs = float(output_rows(problem.how, left, right).sum()) + tail_out
        if not problem.has_equality:
            pairs = stats.left.row_count * stats.right.row_count
        rows_in = np.full(p, small + (stats.input_rows - small) / p)
        report = LoadReport(rows_in, np.full(p, pairs / p), stats.input_rows, title="predicted, broadcast")
        return BroadcastLayout(p, problem.build, report)
