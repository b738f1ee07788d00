"""What a layout costs: its heaviest region, because the join ends when that one does."""

from __future__ import annotations

import numpy as np

from evenkeel.conditions import Condition
from evenkeel.report import LoadReport, weight
from evenkeel.schemes import Problem
from evenkeel.stats import JoinStats
from evenkeel.types import Float64, Side

PROBE_ROW = 0.25
"""A row of the large side of a broadcast is neither shuffled nor sorted: a quarter of an input row's work."""
BUILD_ROW = 2.0
"""A row of the small side is collected, sent to every machine and hashed there."""


W_CHECK = 0.02
"""A pair that a nested loop checks, in units of one shuffled row."""
ROWS_A_SECOND = 1.5e6
"""Rows that one worker reads, shuffles and joins while the driver plans for a second (docs/adr/0002)."""


def work(report: LoadReport, condition: Condition) -> Float64:
    """The weight of every region, with the pairs it checks besides those it gives."""
    checked = pairs_checked(condition, report)
    return report.weights if checked is None else report.weights + W_CHECK * checked


def pairs_checked(condition: Condition, report: LoadReport) -> Float64 | None:
    """Pairs that a region checks one by one, where neither a key nor a range narrows them down."""
    if condition.equi or len(condition.spans) > 1 or (condition.spans and condition.spans[0].binnable):
        return None
    return np.asarray((report.rows_in / 2) ** 2)


def could_save(problem: Problem, heaviest: float, everything: float, cores: int | None) -> float:
    """By how much any layout could end earlier than one whose regions weigh so much.

    None is lighter than one that copies nothing and has regions all alike. A join ends with its heaviest region, and
    where there are fewer cores than regions not before all of them are done.
    """
    pairs = problem.ranges.pair_count if problem.ranges is not None else 0.0
    least = float(weight(problem.stats.input_rows, pairs))
    side_by_side = min(cores or problem.workers, problem.workers)
    return max(heaviest - least / problem.workers, (everything - least) / side_by_side, 0.0)


def broadcast_cost(stats: JoinStats, build: Side, report: LoadReport) -> float:
    small = stats.of(build).row_count
    large = stats.input_rows - small
    return float(BUILD_ROW * small + PROBE_ROW * large / report.regions + weight(0.0, float(np.max(report.rows_out))))
