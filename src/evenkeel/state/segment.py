"""A segment: the rows of one input in one unit, sorted, in one Parquet file that never changes.

Invariant: the file at `path` under the state's root holds `rows` rows in the order the joiner probes them, with
every `_time` in [min_time, max_time]; once written it is only ever removed. So a segment can be cached by its path,
moved by metadata, and expired by its bounds without being opened.
Source: the sub-index of BiStream's chained index (SIGMOD 2015, section 3.3), on disk.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenkeel.errors import StateUnwritable

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
KEY, TIME, ROW = "_key", "_time", "_row"
"""The hash of the row's join key, its event time in microseconds, and the hash of its content and epoch."""


@dataclass(frozen=True, slots=True)
class Segment:
    path: str
    input: str
    unit: int
    rows: int
    size: int
    epoch: int
    """The epoch that wrote it; of a merged segment, the one that merged it."""
    min_time: int | None = None
    max_time: int | None = None
    null_keys: int = 0
    """Rows at the end of the segment whose key is NULL: they match nothing."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Segment:
        return cls(**doc)

    @property
    def span(self) -> int:
        """Microseconds between its oldest and its newest row."""
        return 0 if self.min_time is None or self.max_time is None else self.max_time - self.min_time


def name_of(input: str, unit: int, epoch: int) -> str:
    """A path that no other attempt shares: what a lost attempt wrote is never mistaken for state."""
    return f"side={input}/unit={unit}/{epoch:010d}-{uuid.uuid4().hex}.parquet"


def write_segment(root: str, input: str, unit: int, epoch: int, rows: pa.Table, merged: bool = False) -> Segment:
    """Write rows that are sorted already. Cost: one Parquet file; nothing refers to it until it is committed.

    Dictionaries are kept to text: building them for numbers takes ten times as long as writing the numbers. Merged
    segments live longer and are compressed harder.
    """
    path = name_of(input, unit, epoch)
    file = Path(root, path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = [f.name for f in rows.schema if pa.types.is_string(f.type)]
        pq.write_table(
            rows, file, compression="zstd" if merged else "snappy", use_dictionary=text or False,
            write_statistics=False, row_group_size=max(1, len(rows)),
        )  # fmt: skip
    except OSError as error:
        raise StateUnwritable.at(str(file), error) from error
    times = rows[TIME] if TIME in rows.column_names else None
    bounds = pc.min_max(times).as_py() if times is not None else {"min": None, "max": None}
    nulls = rows[KEY].null_count if KEY in rows.column_names else 0
    size = os.path.getsize(file)
    return Segment(path, input, unit, len(rows), size, epoch, bounds["min"], bounds["max"], nulls)


def read_segment(root: str, segment: Segment) -> pa.Table:
    table = pq.read_table(Path(root, segment.path), partitioning=None).combine_chunks()
    return table


def in_utc(rows: Rows) -> Rows:
    """Points in time labelled as UTC's: Spark labels them with the session's zone, which may be another tomorrow."""
    labelled = pa.schema([f.with_type(_utc(f.type)) for f in rows.schema], rows.schema.metadata)
    return rows if labelled.equals(rows.schema) else rows.cast(labelled)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_utc(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field.with_type(_utc(kind.key_type)), kind.item_field.with_type(_utc(kind.item_type))
        return pa.map_(key, item, kind.keys_sorted)
    return kind
