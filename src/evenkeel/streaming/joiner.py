"""Probing: the pairs of a sorted run and the rows that probe it, found by binary search, in bounded pieces.

    stored   sorted by key hash (then by position), or by position, or not at all (any theta)
    probe    lo, hi = where the row's partners begin and end in `stored`
    pairs    the runs [lo, hi) laid out `PAIRS` at a time; a row with ten million partners is cut into pieces too

Invariant: every pair that satisfies key, bands and window comes out once; a pair that does not is filtered where
the search alone cannot tell (hash collisions, a second band, a window's edge).
Cost: O(p log s) searches for p probing and s stored rows, and O(1) a candidate pair, all vectorised.
Source: the joiner of BiStream, sections 3.2.1 and 3.3, with sorted arrays for hash maps and search trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenkeel.state.segment import KEY, TIME
from evenkeel.streaming.placing import matchless
from evenkeel.streaming.spec import BandSpec, Comparison, JoinSpec
from evenkeel.types import Bool, Int64

PAIRS = 1 << 18
"""Candidate pairs held at once."""


class Run:
    """Sorted rows; those that can match nothing stand at the end."""

    def __init__(self, rows: pa.Table, spec: JoinSpec) -> None:
        self.rows = rows
        self.order = spec.order
        self.valid = len(rows) - int(matchless(rows, spec).sum()) if self.order else len(rows)
        self._numpy: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def numpy(self, column: str) -> npt.NDArray[Any]:
        """An engine column of the rows that can match."""
        if column not in self._numpy:
            self._numpy[column] = _numpy(self.rows[column].slice(0, self.valid))
        return self._numpy[column]

    def column(self, name: str) -> pa.Array:
        chunks = self.rows[name].chunks
        return chunks[0] if len(chunks) == 1 else self.rows[name].combine_chunks()


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(array.to_numpy(zero_copy_only=False))


def sort(rows: pa.Table, spec: JoinSpec, runs: bool = False) -> pa.Table:
    """The rows in the order of a segment, in one piece; `runs` says that they are sorted runs to be merged."""
    rows = rows.combine_chunks()
    if not spec.order or not len(rows):
        return rows
    null = matchless(rows, spec)
    if null.any():
        can = np.flatnonzero(~null)
        table = rows.take(pa.array(can)).combine_chunks()
        rest = rows.take(pa.array(np.flatnonzero(null)))
        return pa.concat_tables([table.take(pa.array(_order(table, spec, runs))), rest]).combine_chunks()
    return rows.take(pa.array(_order(rows, spec, runs))).combine_chunks()


def _order(rows: pa.Table, spec: JoinSpec, runs: bool) -> Int64:
    columns = [_numpy(rows[c]) for c in spec.order]
    if len(columns) == 1:
        return np.argsort(columns[0], kind="stable" if runs else None)
    return np.lexsort(columns[::-1])


def probe(stored: Run, probing: Run, spec: JoinSpec, input: str) -> Iterator[tuple[Int64, Int64]]:
    """Row numbers (stored, probing) of every match; `input` is the one that probes."""
    if not stored.valid or not probing.valid:
        return
    if _apart(stored, probing, spec):
        return
    lo, hi, left = _candidates(stored, probing, spec, input)
    rows = np.flatnonzero(hi > lo)
    if not len(rows):
        return
    lo, hi = lo[rows], hi[rows]
    bands = [b for b in left if not (b.column == TIME and _covered(stored, probing, b))]
    if spec.equality and bands and bands[0].column == spec.order[-1] and int((hi - lo).sum()) > 4 * len(rows):
        lo, hi = _narrow(stored, probing, bands[0], input, rows, lo, hi)
        bands = bands[1:]
    for s, p in _laid_out(lo, hi, rows):
        keep = _matches(stored, probing, s, p, spec, bands, input)
        if keep is None:
            yield s, p
        elif keep.any():
            yield s[keep], p[keep]


def _candidates(stored: Run, probing: Run, spec: JoinSpec, input: str) -> tuple[Int64, Int64, list[BandSpec]]:
    """Where the partners of each probing row begin and end, and the bands still to be looked at."""
    ranges = list(spec.ranges)
    if spec.equality:
        keys, wanted = stored.numpy(KEY), probing.numpy(KEY)
        lo = np.searchsorted(keys, wanted, side="left")
        hi = lo.copy()
        hit = np.flatnonzero(keys[np.minimum(lo, len(keys) - 1)] == wanted)
        hi[hit] = np.searchsorted(keys, wanted[hit], side="right")
        ranges.sort(key=lambda b: b.column != spec.order[-1])
        return lo, hi, ranges
    if not ranges:
        return np.zeros(probing.valid, dtype=np.int64), np.full(probing.valid, stored.valid), []
    band = next(b for b in ranges if b.column == spec.order[0])
    low, high = band.reach(probing.numpy(band.column), input)
    values = stored.numpy(band.column)
    lo, hi = np.searchsorted(values, low, side="left"), np.searchsorted(values, high, side="right")
    return lo, hi, [b for b in ranges if b is not band]


def _bounds(run: Run) -> tuple[int, int]:
    times = run.numpy(TIME)
    return int(times.min()), int(times.max())


def _apart(stored: Run, probing: Run, spec: JoinSpec) -> bool:
    """Whether no two rows are in one window."""
    if spec.window.kind != "sliding":
        return False
    (a, b), (c, d) = _bounds(stored), _bounds(probing)
    return a - d > spec.window.size or c - b > spec.window.size


def _covered(stored: Run, probing: Run, band: BandSpec) -> bool:
    """Whether any two rows are in one window, so that no pair has to be looked at."""
    (a, b), (c, d) = _bounds(stored), _bounds(probing)
    return max(b - c, d - a) <= band.hi


def _narrow(
    stored: Run, probing: Run, band: BandSpec, input: str, rows: Int64, lo: Int64, hi: Int64
) -> tuple[Int64, Int64]:
    """The part of each run of equal keys that lies in the band: runs are sorted by it."""
    values = stored.numpy(band.column)
    low, high = band.reach(probing.numpy(band.column)[rows], input)
    return _bisect(values, low, lo, hi, right=False), _bisect(values, high, lo, hi, right=True)


def _bisect(values: npt.NDArray[Any], target: npt.NDArray[Any], lo: Int64, hi: Int64, right: bool) -> Int64:
    """`searchsorted` of each target in its own slice of values."""
    lo, hi = lo.copy(), hi.copy()
    while True:
        live = np.flatnonzero(lo < hi)
        if not len(live):
            return lo
        mid = (lo[live] + hi[live]) // 2
        here, wanted = values[mid], target[live]
        below = here <= wanted if right else here < wanted
        lo[live] = np.where(below, mid + 1, lo[live])
        hi[live] = np.where(below, hi[live], mid)


def _laid_out(lo: Int64, hi: Int64, rows: Int64) -> Iterator[tuple[Int64, Int64]]:
    """The pairs of the runs [lo, hi), at most PAIRS at a time."""
    ends = np.cumsum(hi - lo)
    total = int(ends[-1])
    starts = ends - (hi - lo)
    for at in range(0, total, PAIRS):
        to = min(at + PAIRS, total)
        first, last = np.searchsorted(ends, at, side="right"), np.searchsorted(ends, to, side="left")
        part = slice(int(first), int(last) + 1)
        begin, end = np.maximum(starts[part], at), np.minimum(ends[part], to)
        counts = end - begin
        which = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(at, to) - starts[part][which]
        yield lo[part][which] + offset, rows[part][which]


def _matches(
    stored: Run, probing: Run, s: Int64, p: Int64, spec: JoinSpec, bands: list[BandSpec], input: str
) -> Bool | None:
    """Which candidates are matches; None if all are."""
    keep: Bool | None = None

    def also(mask: Bool) -> None:
        nonlocal keep
        keep = mask if keep is None else keep & mask

    for band in bands:
        low, high = band.reach(probing.numpy(band.column)[p], input)
        value = stored.numpy(band.column)[s]
        also((value >= low) & (value <= high))
    left, right = (probing, stored) if input == "left" else (stored, probing)
    at_left, at_right = (p, s) if input == "left" else (s, p)
    for check in (*spec.verify, *spec.checks):
        also(compare(left.column(check.left).take(pa.array(at_left)), check,
                     right.column(check.right).take(pa.array(at_right))))  # fmt: skip
    return keep


_FUNCTIONS = {"=": pc.equal, "<=>": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater,
              ">=": pc.greater_equal, "<>": pc.not_equal}  # fmt: skip


def compare(left: pa.Array, check: Comparison, right: pa.Array) -> Bool:
    """As Spark compares: NaN equals itself and is above every number, -0.0 is 0.0."""
    a, b = (_ordered(c) if pa.types.is_floating(c.type) else c for c in (left, right))
    found = _FUNCTIONS[check.op](a, b)
    if check.op == "<=>":
        both = pc.and_(a.is_null(), b.is_null())
        return np.asarray(pc.or_(pc.fill_null(found, False), both))
    return np.asarray(pc.fill_null(found, False))


def _ordered(column: pa.Array) -> pa.Array:
    """Floating-point numbers as integers of the same order."""
    null = np.asarray(column.is_null())
    values = np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0)) + 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return pa.array(np.where(bits < 0, np.int64(-(2**63)) - bits, bits), mask=null)
