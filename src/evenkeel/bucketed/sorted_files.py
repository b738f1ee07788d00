"""Sorted files read as one sorted stream of bounded chunks, with keys in a form that compares as Spark orders them.

A chunk holds rows in key order, and no later chunk holds a smaller key. Several files are merged: the rows up to the
smallest of the files' newest keys cannot be preceded by anything unread, so they are taken and sorted together.
Memory: one batch a file, whatever the size of the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenkeel.bucketed.metadata import NULL_BUCKET, DataFile
from evenkeel.bucketed.store import Store
from evenkeel.errors import BrokenTable

Key = tuple[Any, ...]
"""The key of one row as Python values that compare as Spark orders keys."""
Between = tuple[int, int]
"""The smallest and the largest key that are wanted, where the key is one whole number."""
BATCH_BYTES = 8 << 20
MOST_ROWS = 1 << 16


@dataclass(frozen=True)
class Chunk:
    """Rows in key order, with their keys in comparable form beside them."""

    rows: pa.RecordBatch
    keys: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def key(self, i: int) -> Key:
        return tuple(_value(c[i].as_py()) for c in self.keys)

    def slice(self, start: int, stop: int) -> Chunk:
        n = stop - start
        return Chunk(self.rows.slice(start, n), tuple(k.slice(start, n) for k in self.keys))

    def below(self, key: Key, *, inclusive: bool) -> int:
        """How many rows have a key below this one, or not above it."""
        if len(self.keys) == 1 and pa.types.is_int64(self.keys[0].type):
            values = np.asarray(self.keys[0])
            return int(np.searchsorted(values, key[0], side="right" if inclusive else "left"))
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            at = self.key(middle)
            if at < key or (inclusive and at == key):
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)


def concat(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    rows = pa.concat_batches([c.rows for c in chunks])
    keys = tuple(pa.concat_arrays([c.keys[i] for c in chunks]) for i in range(len(chunks[0].keys)))
    return Chunk(rows, keys)


def comparable(column: pa.Array) -> pa.Array:
    """Integers for whole numbers, dates, times and booleans; floats with one zero; text as its bytes."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.add(column.cast(pa.float64()), 0.0)  # -0.0 + 0.0 = 0.0
    if pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz)).view(pa.int64())
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.large_binary()) if pa.types.is_binary(kind) else column


def _value(value: Any) -> Any:
    """NaN comes after every number and equals itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def read_sorted(
    store: Store,
    files: Sequence[DataFile],
    columns: Sequence[str],
    key: Sequence[str],
    distinct: bool = False,
    between: Between | None = None,
) -> Iterator[Chunk]:
    """The rows of all files in key order; with `distinct`, one row for each run of equal keys.

    With `between`, row groups that hold no key in that range are not read.
    """
    columns = columns or key[:1]  # rows without columns could not be counted
    streams = [_read(store, f, columns, key, between) for f in files]
    if files and files[0].bucket == NULL_BUCKET:  # NULL is neither below nor above anything
        out: Iterator[Chunk] = itertools.chain.from_iterable(streams)
    else:
        out = streams[0] if len(streams) == 1 else _merge(streams)
    return map(_one_a_run, out) if distinct else out


def key_range(store: Store, files: Sequence[DataFile], key: Sequence[str]) -> Between | None:
    """The smallest and largest key, where it is one whole number and the footers tell."""
    found: list[Between] = []
    for file in files:
        store.check(file)
        with store.open(file) as source, _damage(store, file):
            ranges = [_group_range(group, key) for group in _groups(pq.read_metadata(source))]
        if None in ranges:
            return None
        found += [r for r in ranges if r is not None]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def _groups(footer: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    return [footer.row_group(g) for g in range(footer.num_row_groups)]


def _group_range(group: pq.RowGroupMetaData, key: Sequence[str]) -> Between | None:
    if "." in key[0]:  # in a footer, a column of this name and a field of a struct look the same
        return None
    columns = (group.column(c) for c in range(group.num_columns))
    column = next((c for c in columns if c.path_in_schema == key[0]), None)
    stats = None if column is None or len(key) > 1 else column.statistics
    if stats is None or not stats.has_min_max or stats.null_count:
        return None
    # Asked by type first: old versions of pyarrow fail on the bounds of decimals.
    whole = stats.physical_type in ("INT32", "INT64") and stats.logical_type.type in ("NONE", "INT")
    return (stats.min, stats.max) if whole else None


def _read(
    store: Store, file: DataFile, columns: Sequence[str], key: Sequence[str], between: Between | None
) -> Iterator[Chunk]:
    store.check(file)
    wanted = list(dict.fromkeys([*columns, *key]))
    rows = skipped = 0
    with store.open(file) as source, _damage(store, file):
        parquet = pq.ParquetFile(
            source,
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
        )
        picked = []
        for g, group in enumerate(_groups(parquet.metadata)):
            held = _group_range(group, key) if between is not None else None
            if held is not None and between is not None and (held[1] < between[0] or held[0] > between[1]):
                skipped += group.num_rows
            else:
                picked.append(g)
        size = _batch_rows(parquet.metadata)
        for batch in parquet.iter_batches(size, row_groups=picked, columns=wanted, use_threads=False):
            rows += batch.num_rows
            yield Chunk(batch.select(list(columns)), tuple(comparable(batch.column(k)) for k in key))
    if rows + skipped != file.rows:
        why = f"it holds {rows + skipped:,} rows where the table's metadata says {file.rows:,}"
        raise BrokenTable.file_damaged(f"{store.path}/{file.path}", why)


class _damage:
    """Errors of the Parquet reader name the file."""

    def __init__(self, store: Store, file: DataFile) -> None:
        self._shown = f"{store.path}/{file.path}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (pa.ArrowException, OSError)):
            raise BrokenTable.file_damaged(self._shown, str(error).splitlines()[0]) from error


def _batch_rows(footer: pq.FileMetaData) -> int:
    size = sum(footer.row_group(g).total_byte_size for g in range(footer.num_row_groups))
    width = max(1.0, size / max(1, footer.num_rows))
    return int(min(MOST_ROWS, max(256, BATCH_BYTES / width)))


def _merge(streams: list[Iterator[Chunk]]) -> Iterator[Chunk]:
    heads: list[tuple[Chunk, Iterator[Chunk]]] = []
    for s in streams:
        first = _next(s)
        if first is not None:
            heads.append((first, s))
    while len(heads) > 1:
        bound = min(chunk.key(len(chunk) - 1) for chunk, _ in heads)
        taken, left = [], []
        for chunk, stream in heads:
            n = chunk.below(bound, inclusive=True)
            if n:
                taken.append(chunk.slice(0, n))
            rest = chunk.slice(n, len(chunk)) if n < len(chunk) else _next(stream)
            if rest is not None:
                left.append((rest, stream))
        heads = left
        yield _in_order(concat(taken)) if len(taken) > 1 else taken[0]
    for chunk, stream in heads:
        yield chunk
        yield from stream


def _next(stream: Iterator[Chunk]) -> Chunk | None:
    return next((c for c in stream if len(c)), None)


def _in_order(chunk: Chunk) -> Chunk:
    names = [str(i) for i in range(len(chunk.keys))]
    order = pc.sort_indices(
        pa.RecordBatch.from_arrays(list(chunk.keys), names=names), sort_keys=[(n, "ascending") for n in names]
    )
    return Chunk(chunk.rows.take(order), tuple(k.take(order) for k in chunk.keys))


def _one_a_run(chunk: Chunk) -> Chunk:
    starts = run_starts(codes([chunk.keys])[0])
    if len(starts) == len(chunk):
        return chunk
    picks = pa.array(starts)
    return Chunk(chunk.rows.take(picks), tuple(k.take(picks) for k in chunk.keys))


def run_starts(code: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where a new key begins."""
    if not len(code):
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(code[1:] != code[:-1]) + 1])


def codes(sides: Sequence[Sequence[pa.Array]]) -> list[np.ndarray[Any, Any]]:
    """A whole number for every row of every side: equal exactly where the keys are."""
    if len(sides[0]) == 1 and pa.types.is_int64(sides[0][0].type):
        return [np.asarray(side[0]) for side in sides]
    lengths = [len(side[0]) for side in sides]
    code = np.zeros(sum(lengths), dtype=np.int64)
    for i in range(len(sides[0])):
        column = pc.dictionary_encode(pa.concat_arrays([side[i] for side in sides]))
        size = len(column.dictionary) + 1
        code = code * size + np.asarray(column.indices, dtype=np.int64)
        if i + 1 < len(sides[0]):  # dense again, so that the next product fits
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
    return np.split(code, np.cumsum(lengths)[:-1])
