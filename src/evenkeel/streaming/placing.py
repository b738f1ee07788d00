"""What a routing table places rows by, made from the rows: when they come, and whenever they are placed again.

A row that can match nothing (a key, position or time is missing) is placed by its content alone: it may go anywhere,
and is spread.
Invariant: the same for a row on its way in and for its copy in a segment.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenkeel.state.segment import KEY
from evenkeel.streaming.spec import JoinSpec
from evenkeel.types import Bool, Float64, Int64


def placed_by(rows: pa.Table, content: Int64, spec: JoinSpec) -> tuple[Int64, Int64, Float64 | None]:
    """Hash of the key, hash of the content, and position in the condition's first band."""
    key, position = content, None
    lone = matchless(rows, spec)
    if spec.equality:
        key = np.where(lone, content, np.asarray(rows[KEY].fill_null(0)))
    if spec.bands:
        first = rows[spec.bands[0].column].cast(pa.float64())
        position = np.where(lone, np.nan, np.asarray(first.fill_null(np.nan)))
    return key, content, position


def matchless(rows: pa.Table, spec: JoinSpec) -> Bool:
    out = np.zeros(len(rows), dtype=bool)
    for column in spec.required:
        if rows[column].null_count:
            out |= np.asarray(rows[column].is_null())
    return out


def placed_by_sql(content: str, spec: JoinSpec) -> tuple[str, str | None]:
    """The same as Spark expressions: key and position."""
    lone = " OR ".join(f"{c} IS NULL" for c in spec.required)
    key = f"CASE WHEN {lone} THEN {content} ELSE {KEY} END" if spec.equality else content
    if not spec.bands:
        return key, None
    return key, f"CASE WHEN {lone} THEN double('NaN') ELSE {spec.bands[0].column} END"
