"""Hash partitioning: a key's rows all go to one region, chosen by its hash.

Invariant: region(row) = hash(key) mod p on both sides, so a pair meets once and nothing is copied.
Cost: a region is at least as heavy as its heaviest key, whatever p is: one hot key is one long task.
This is what Spark does by itself; it is here to be compared with, and to be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.report import LoadReport
from evenkeel.schemes.base import Batch, Layout, Problem, Routed, RouteExpr, spread, spread_sql
from evenkeel.schemes.output import output_rows
from evenkeel.types import Side


@dataclass(frozen=True, eq=False)
class HashLayout:
    workers: int
    predicted: LoadReport | None = None

    def route(self, side: Side, batch: Batch) -> Routed:
        return Routed(np.arange(len(batch.key)), spread(batch, self.workers))

    def route_expr(self, side: Side) -> RouteExpr:
        return RouteExpr(spread_sql(self.workers))

    def replicates(self, side: Side) -> bool:
        return False


class Hash:
    name = "hash"
    summary = "each key in one region, by its hash"

    def planning(self, workers: int) -> float:
        return 0.0

    def fit(self, problem: Problem) -> Layout:
        stats, p = problem.stats, problem.workers
        keys, left, right = stats.known_keys()
        tail_left, tail_right, tail_out = stats.tail(left, right)
        nulls = stats.left.null_count + stats.right.null_count
        rows_in = np.full(p, (tail_left + tail_right + nulls) / p)
        rows_out = np.full(p, tail_out / p)
        region = np.mod(keys, p)
        np.add.at(rows_in, region, left + right)
        np.add.at(rows_out, region, output_rows(problem.how, left, right))
        return HashLayout(p, LoadReport(rows_in, rows_out, stats.input_rows, title="predicted, hash"))
