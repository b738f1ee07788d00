"""An executor without Spark: the units of an epoch, one after the other, in this process.

It is what simulations and property tests run, and the shortest description of what an executor does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenkeel.hashing import xxhash64
from evenkeel.state import Segment, SegmentCache
from evenkeel.state.migration import Stage
from evenkeel.state.segment import ROW
from evenkeel.streaming import due
from evenkeel.streaming.driver import EpochPlan
from evenkeel.streaming.moving import Moving, cut
from evenkeel.streaming.placing import placed_by
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.unit import UnitEpoch, UnitReport
from evenkeel.types import Int64


class LocalExecutor:
    """A batch is a mapping from input to a table of prepared rows."""

    def __init__(self, spec: JoinSpec, result: pa.Schema, cache: SegmentCache) -> None:
        self.spec, self.result, self.cache = spec, result, cache
        self._reports: list[UnitReport] = []

    def start(self, plan: EpochPlan, batch: Mapping[str, pa.Table]) -> pa.Table:
        self._reports, out = [], []
        routed = {i: self._routed(plan, i, batch[i]) for i in INPUTS}
        for task in plan.tasks:
            unit = UnitEpoch(task, self.spec, self.cache)
            rows = {i: routed[i][task.unit] for i in INPUTS}
            out += list(unit.results(rows, self.result))
            self._reports.append(unit.report)
        out += self._settled(plan)
        return pa.Table.from_batches(out, self.result)

    def _settled(self, plan: EpochPlan) -> list[pa.RecordBatch]:
        """Rows that are due and whose partners are in several units."""
        out: list[pa.RecordBatch] = []
        asked: dict[tuple[str, int], list[pa.Table]] = {}
        for at in plan.asking(self.spec):
            rows = due.ask(at, plan.due, plan.table, self.spec, self.cache)
            for unit in np.unique(np.asarray(rows[due.UNIT])):
                here = rows.filter(pa.array(np.asarray(rows[due.UNIT]) == unit))
                asked.setdefault((at.segment.input, int(unit)), []).append(here)
        answers: dict[str, list[pa.Table]] = {}
        for (input, unit), tables in asked.items():
            held = plan.tasks[unit].segments[INPUTS[1 - INPUTS.index(input)]]
            answers.setdefault(input, []).append(
                due.answer(pa.concat_tables(tables), input, held, self.spec, self.cache)
            )
        for input, tables in answers.items():
            rows = due.settle(pa.concat_tables(tables), self.spec)
            self._reports[0].emitted += len(rows)
            out += due.shown(rows, input, self.spec, self.result).to_batches()
        return out

    def finish(self, plan: EpochPlan) -> list[UnitReport]:
        return self._reports

    def move(self, plan: EpochPlan, shares: Sequence[Moving]) -> list[Stage]:
        return [cut(m, self.spec, self.cache, plan.tasks[0].root, plan.epoch) for m in shares]

    def forget(self, epoch: int, removed: Sequence[Segment]) -> None:
        for segment in removed:
            self.cache.drop(segment.path)

    def _routed(self, plan: EpochPlan, input: str, rows: pa.Table) -> list[tuple[pa.Table, Int64]]:
        row = content_hash(rows.select(self.spec.columns[input]), plan.epoch)
        placed = plan.table.place(input, *placed_by(rows, row, self.spec))
        if plan.rows:
            rows = rows.append_column(ROW, pa.array(row))
        out = []
        for unit in range(plan.table.units):
            here = placed.unit == unit
            out.append((rows.take(pa.array(placed.row[here])), placed.codes[here]))
        return out


def content_hash(rows: pa.Table, epoch: int) -> Int64:
    """Of all columns and of the epoch: equal rows are placed alike within an epoch, and spread over epochs."""
    columns: list[Any] = [rows[c] for c in rows.column_names]
    return xxhash64([pa.array(np.full(len(rows), epoch, dtype=np.int64)), *columns])
