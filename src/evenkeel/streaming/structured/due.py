"""Rows that are due and ask several units, as part of an epoch's one Spark job (`streaming/due.py` says what they do).

    segments with rows that are due -- ask -- exchange by unit -- answer -- exchange by row -- settle -- results

It only reads segments, so whoever computes it twice gets the same rows and changes nothing. The tasks that settle
count what they show in report files, as units do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from evenkeel.spark.workers import in_workers
from evenkeel.state import SegmentCache
from evenkeel.state.segment import in_utc
from evenkeel.streaming import due
from evenkeel.streaming.driver import EpochPlan
from evenkeel.streaming.spec import INPUTS, JoinSpec

Arrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
SIDE = "_side"


def settled(
    spark: SparkSession,
    plan: EpochPlan,
    spec: JoinSpec,
    rows: pa.Schema,
    result: Any,
    parts: int,
    cache: Callable[[], SegmentCache],
    count: Callable[[int, int], None],
) -> DataFrame | None:
    """The rows to show, with the columns of `result`; None if no segment holds a row that is due.

    `rows` is the schema of tagged rows, `count(part, rows)` is told what each task showed, if anything.
    """
    asking = plan.asking(spec)
    if not asking:
        return None
    sent = rows
    for name, kind in ((due.ID, pa.int64()), (due.UNIT, pa.int64()), (due.FIRST, pa.bool_())):
        sent = sent.append(pa.field(name, kind))
    answered = sent.append(pa.field(due.MATCHED, pa.bool_()))
    names = [f.name for f in result]

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                at = asking[number]
                found = due.ask(at, plan.due, plan.table, spec, cache())
                yield from _tagged(found, INPUTS.index(at.segment.input), sent).to_batches()

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(map(in_utc, batches), sent)
        side, unit = (np.asarray(table[c]) for c in (SIDE, due.UNIT))
        for i, input in enumerate(INPUTS):
            for u in np.unique(unit[side == i]):
                here = table.filter(pa.array((side == i) & (unit == u)))
                held = plan.tasks[int(u)].segments[INPUTS[1 - i]]
                yield from due.answer(here, input, held, spec, cache()).cast(answered).to_batches()

    def settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(map(in_utc, batches), answered)
        sides = ("left",) if not spec.pairs else INPUTS
        shown = pa.schema([answered.field(c) for s in sides for c in spec.columns[s]])
        rows = 0
        for i, input in enumerate(INPUTS):
            mine = due.settle(table.filter(pa.array(np.asarray(table[SIDE]) == i)), spec)
            rows += len(mine)
            yield from due.shown(mine, input, spec, shown).rename_columns(names).to_batches() if len(mine) else ()
        if rows:
            count(int(table[due.ID][0].as_py() % parts), rows)

    source = spark.range(0, len(asking), 1, min(parts, len(asking)))
    asked = in_workers(source, ask, from_arrow_schema(sent))
    moved = asked.repartitionById(parts, F.expr(f"cast(pmod({due.UNIT}, {parts}) AS int)"))
    answers = in_workers(moved, answer, from_arrow_schema(answered))
    home = answers.repartitionById(parts, F.expr(f"cast(pmod({due.ID}, {parts}) AS int)"))
    return in_workers(home, settle, result)


def _tagged(rows: pa.Table, side: int, schema: pa.Schema) -> pa.Table:
    """Under the schema of tagged rows, the other input's columns NULL."""
    columns: Sequence[Any] = [
        pa.array(np.full(len(rows), side, dtype=np.int8)) if f.name == SIDE
        else rows[f.name].cast(f.type) if f.name in rows.column_names
        else pa.nulls(len(rows), f.type)
        for f in schema
    ]  # fmt: skip
    return pa.table(columns, schema=schema)
