"""The load of every region: what a plan predicts and what a run measured, in one shape.

`weight = w_i * rows_in + w_o * rows_out` is the work of a region in units of one shuffled input row;
the weights were fitted on Spark's own sort-merge join (docs/adr/0002).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenkeel import charts
from evenkeel.types import Float64

W_IN = 1.0
W_OUT = 0.1


def weight(rows_in: Any, rows_out: Any) -> Any:
    return W_IN * rows_in + W_OUT * rows_out


@dataclass(frozen=True, eq=False)
class LoadReport:
    """Per region: rows in, rows out and, when it was run, task time."""

    rows_in: Float64
    rows_out: Float64
    input_rows: float
    """Rows of both inputs before any of them was copied."""
    task_seconds: Float64 | None = None
    """Time of the task of each region; None when nothing was run or Spark would not tell."""
    title: str = "load per region"
    rows_between: float = 0.0
    """Rows that one join made and another one read, where there are several."""

    @property
    def regions(self) -> int:
        return len(self.rows_in)

    @property
    def weights(self) -> Float64:
        return np.asarray(weight(self.rows_in, self.rows_out), dtype=np.float64)

    @property
    def skew_degree(self) -> float:
        """Heaviest region / mean region, by weight: 1 is perfect."""
        mean = float(self.weights.mean())
        return float(self.weights.max()) / mean if mean > 0 else 1.0

    @property
    def task_skew(self) -> float | None:
        """Longest task / mean task, when tasks were timed."""
        if self.task_seconds is None or self.task_seconds.mean() <= 0:
            return None
        return float(self.task_seconds.max() / self.task_seconds.mean())

    @property
    def replication(self) -> float:
        """Rows shipped / rows read."""
        return float(self.rows_in.sum()) / self.input_rows if self.input_rows else 1.0

    @property
    def network_factor(self) -> float:
        """Rows that all tasks read and made / rows that the query reads and makes (Squall thesis, section 5.3.2)."""
        made = float(self.rows_out.sum())
        done = float(self.rows_in.sum()) + self.rows_between + made
        return done / (self.input_rows + made) if self.input_rows + made > 0 else 1.0

    def projected_makespan(self, workers: int | None = None) -> float:
        """When the last of `workers` machines would be done, longest task first.

        In seconds when tasks were timed, else in units of weight.
        """
        cost = self.weights if self.task_seconds is None else self.task_seconds
        free = [0.0] * max(1, workers or self.regions)
        for task in sorted(cost, reverse=True):
            heapq.heappush(free, heapq.heappop(free) + float(task))
        return max(free)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows_in": self.rows_in.tolist(),
            "rows_out": self.rows_out.tolist(),
            "weights": self.weights.tolist(),
            "task_seconds": None if self.task_seconds is None else self.task_seconds.tolist(),
            "skew_degree": self.skew_degree,
            "replication": self.replication,
        }

    def summary(self) -> str:
        timed = ""
        if self.task_seconds is not None:
            timed = f", longest task {self.task_seconds.max():.2f} s"
        return (
            f"{self.regions} regions, heaviest / mean {self.skew_degree:.2f}, "
            f"replication {self.replication:.2f}, {self.rows_out.sum():,.0f} rows out{timed}"
        )

    def __str__(self) -> str:
        return f"{self.title}: {self.summary()}\n{charts.bars(self.weights)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return charts.svg([charts.Panel(self.title, self.weights, self.summary())])
