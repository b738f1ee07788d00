"""Rows that are due, where their partners are spread over units: they ask, units answer, answers are put together.

    ask      the unit with a row's primary copy sends it, by the routing table, to every unit it may match in
    answer   a unit probes its segments of the other input: did the row match here?
    settle   all answers of a row together: it is shown if none was yes, or, for a semi join, if any was

Invariant: a row that is due asks once, however many copies of it are stored, and every unit that stores a partner is
asked: that is the strategies' contract, for any content hash. Which rows are due is told by two watermarks alone, so an
epoch that is run again shows the same rows. A row is known by its segment and its place in it.
Cost: only rows that are due are sent, as often as when they came; their columns travel once, with the first copy. Where
one unit holds all partners of a row, the unit settles it alone (`unit.py`) and nothing is sent.
Source: the match bits of outer joins over replicated rows (design, section 4), on BiStream's probe placements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from evenkeel import hashing
from evenkeel.state import Segment, SegmentCache
from evenkeel.state.segment import ROW, TIME
from evenkeel.streaming.joiner import Run, probe, sort
from evenkeel.streaming.placing import placed_by
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.strategies import RoutingTable
from evenkeel.types import Bool, Int64

ID, UNIT, FIRST, MATCHED = "_id", "_to", "_first", "_matched"
Due = tuple[int | None, int | None]
"""Rows from the first time up to the second are due; none where the second is None, no lower end where the first is."""


@dataclass(frozen=True)
class Asking:
    """A segment with rows that are due; `number` tells it from the others of the epoch."""

    number: int
    segment: Segment


def asking(segments: Sequence[Segment], due: Due, spec: JoinSpec) -> list[Asking]:
    held = [s for s in segments if s.input in spec.preserved and _overlaps(s, due)]
    return [Asking(i, s) for i, s in enumerate(sorted(held, key=lambda s: s.path))]


def _overlaps(s: Segment, due: Due) -> bool:
    begin, end = due
    if end is None or s.min_time is None or s.max_time is None:
        return False
    return s.min_time < end and (begin is None or s.max_time >= begin)


def are_due(times: Int64, due: Due) -> Bool:
    begin, end = due
    if end is None:
        return np.zeros(len(times), dtype=bool)
    return np.asarray(times < end if begin is None else (times < end) & (times >= begin))


def ask(at: Asking, due: Due, table: RoutingTable, spec: JoinSpec, cache: SegmentCache) -> pa.Table:
    """The rows of the segment that are due, once for each unit to ask (`_to`); all columns with the first copy only."""
    rows = cache.get(at.segment)
    where = np.flatnonzero(are_due(np.asarray(rows[TIME]), due))
    rows = rows.take(pa.array(where)).combine_chunks()
    identity = (np.int64(at.number) << 32) + where
    content = np.asarray(rows[ROW]) if spec.rows else hashing.rehash(identity)
    placed = table.place(at.segment.input, *placed_by(rows, content, spec))
    mine = np.ones(len(rows), dtype=bool)
    if spec.rows:
        mine[:] = False
        mine[placed.row[placed.primary & (placed.unit == at.segment.unit)]] = True
    asks = placed.probe & mine[placed.row]
    row, unit = placed.row[asks], placed.unit[asks]
    nowhere = np.setdiff1d(np.flatnonzero(mine), row)  # no unit can match it: the unit it is in says so
    row, unit = np.concatenate([row, nowhere]), np.concatenate([unit, np.full(len(nowhere), at.segment.unit)])
    first = np.zeros(len(row), dtype=bool)
    first[np.unique(row, return_index=True)[1]] = True
    sent = rows.take(pa.array(row)).combine_chunks()
    compared = {c for check in (*spec.verify, *spec.checks) for c in (check.left, check.right)}
    for i, name in enumerate(sent.column_names):
        if not first.all() and name in spec.columns[at.segment.input] and name not in compared:
            kept = np.where(first, np.arange(len(row)), -1)
            sent = sent.set_column(i, name, sent[name].take(pa.array(kept, mask=~first)))
    more = {ID: identity[row], UNIT: unit.astype(np.int64), FIRST: first}
    for name, values in more.items():
        sent = sent.append_column(name, pa.array(values))
    return sent


def answer(rows: pa.Table, input: str, held: Sequence[Segment], spec: JoinSpec, cache: SegmentCache) -> pa.Table:
    """Rows that ask one unit with `_matched`; a further copy that did not match has nothing to say."""
    rows = sort(rows, spec)
    run = Run(rows, spec)
    matched = matches(run, input, held, spec, cache)
    says = matched | np.asarray(rows[FIRST])
    return rows.append_column(MATCHED, pa.array(matched)).filter(pa.array(says))


def matches(run: Run, input: str, held: Sequence[Segment], spec: JoinSpec, cache: SegmentCache) -> Bool:
    """Which rows match any row of the other input's segments."""
    matched = np.zeros(len(run), dtype=bool)
    for segment in held:
        for _, p in probe(Run(cache.get(segment), spec), run, spec, input):
            matched[p] = True
    return matched


def settle(answers: pa.Table, spec: JoinSpec) -> pa.Table:
    """All answers to some rows; the rows to be shown."""
    matched = np.asarray(answers[ID].filter(answers[MATCHED]))
    rows = answers.filter(answers[FIRST])
    found = np.isin(np.asarray(rows[ID]), matched)
    return rows.filter(pa.array(found if spec.how == "left_semi" else ~found)).combine_chunks()


def shown(rows: pa.Table, input: str, spec: JoinSpec, schema: pa.Schema) -> pa.Table:
    """Rows of one input as results, the other input's columns NULL."""
    if not spec.pairs:
        return fitted([rows[c] for c in spec.columns[input]], schema)
    columns: list[Any] = []
    for side in INPUTS:
        for name in spec.columns[side]:
            alone = pa.nulls(len(rows), schema.field(len(columns)).type)
            columns.append(rows[name] if side == input else alone)
    return fitted(columns, schema)


def fitted(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """Columns under the result's names and types; a time zone is but a label."""
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(cast, schema=schema)
