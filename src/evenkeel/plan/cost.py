"""What a layout costs: its heaviest region, because the join ends when that one does."""

from __future__ import annotations

import numpy as np

from evenkeel.report import LoadReport, weight
from evenkeel.stats import JoinStats
from evenkeel.types import Side

PROBE_ROW = 0.25
"""A row of the large side of a broadcast is neither shuffled nor sorted: a quarter of an input row's work."""
BUILD_ROW = 2.0
"""A row of the small side is collected, sent to every machine and hashed there."""


def heaviest(report: LoadReport) -> float:
    return float(report.weights.max(initial=0.0))


def broadcast_cost(stats: JoinStats, build: Side, report: LoadReport) -> float:
    small = stats.of(build).row_count
    large = stats.input_rows - small
    return float(
        BUILD_ROW * small + PROBE_ROW * large / report.regions + weight(0.0, float(np.max(report.rows_out)))
    )
