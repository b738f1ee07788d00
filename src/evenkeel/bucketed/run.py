"""A task, run: its files read, merged, and the columns of both sides put in their places. No Spark in here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenkeel.bucketed.columns import OutColumn
from evenkeel.bucketed.merge import Picks, merge, picked
from evenkeel.bucketed.metadata import DataFile
from evenkeel.bucketed.pair import Task
from evenkeel.bucketed.sorted_files import Between, Chunk, key_range, read_sorted
from evenkeel.bucketed.store import Store
from evenkeel.types import Side, other


def run_task(
    task: Task,
    stores: Mapping[Side, Store],
    keys: Mapping[Side, Sequence[str]],
    columns: Sequence[OutColumn],
    schema: pa.Schema,
    between: Between | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of one task, in the schema of the result; with `between`, row groups beyond it are skipped."""
    mine, theirs = task.drive, other(task.drive)
    own = [_source(c, mine) for c in columns if c.right_key is not None or c.side == mine]
    foreign = [c.source for c in columns if c.right_key is None and c.side == theirs]
    driver = read_sorted(stores[mine], task.driver, _distinct(own), keys[mine], between=between)
    files: list[DataFile] = [f for unit in task.partners for f in unit]
    wanted = [] if task.keys_only else _distinct(foreign)
    partner: Iterator[Chunk] = iter(())
    if files:
        reach = _both(between, key_range(stores[mine], task.driver, keys[mine]))
        partner = read_sorted(stores[theirs], files, wanted, keys[theirs], task.keys_only, reach)

    def emit(
        rows: pa.RecordBatch, picks: Picks, matched: pa.RecordBatch | None, which: np.ndarray[Any, Any] | None
    ) -> pa.RecordBatch:
        kept = picked(rows, picks)
        at = None
        if matched is not None and which is not None:
            at = pa.array(which, mask=which < 0) if (which < 0).any() else pa.array(which)
        out = []
        for column, field in zip(columns, schema, strict=True):
            if column.right_key is not None or column.side == mine:
                array = kept.column(_source(column, mine))
            elif matched is None or at is None:
                array = pa.nulls(kept.num_rows, field.type)
            else:
                array = matched.column(column.source).take(at)
            out.append(array)
        return place(out, schema)

    return merge(driver, partner, task.mode, emit)


def _source(column: OutColumn, side: Side) -> str:
    return column.right_key if column.right_key is not None and side == "right" else column.source


def _both(a: Between | None, b: Between | None) -> Between | None:
    return (max(a[0], b[0]), min(a[1], b[1])) if a and b else a or b


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def place(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The arrays as the columns of the result, in the types that Spark expects."""
    cast = [a if a.type == f.type else pc.cast(a, f.type) for a, f in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
