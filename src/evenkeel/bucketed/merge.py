"""Merge join of two sorted streams in bounded memory: a driving one, whose rows may be preserved, and a partner.

    while the driver has rows:
        join the driving rows whose matches have all been read  (those below the partner's newest key)
        forget partner rows below that key, read on

Invariant: a driving row is judged once, when every partner row with its key is at hand. The driver is never held
back: only the run of partner rows that share the newest key is kept, and where that run outgrows `LIMIT` it goes to a
temporary file that is read once for every chunk of driving rows with that key. Output is cut into batches however
many pairs a row has. Cost: O(driver + partner + output). Paper: SMBJoin, III-A (`MergeJoinFn`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from evenkeel.bucketed.pair import Mode
from evenkeel.bucketed.sorted_files import Chunk, Key, codes, concat, run_starts

LIMIT = 64 << 20
"""Bytes of one key's partner rows that are kept in memory."""
OUT_ROWS = 1 << 16
OUT_BYTES = 16 << 20

Picks = np.ndarray[Any, Any] | slice
Emit = Callable[[pa.RecordBatch, Picks, pa.RecordBatch | None, np.ndarray[Any, Any] | None], pa.RecordBatch]
"""Driving rows and which of them, partner rows and which of them (-1 for none): a batch of the result."""


def merge(driver: Iterator[Chunk], partner: Iterator[Chunk], mode: Mode, emit: Emit) -> Iterator[pa.RecordBatch]:
    """The joined batches."""
    at_hand = _Partner(partner)
    for chunk in driver:
        rest = chunk
        while len(rest):
            if at_hand.spill is not None:  # the driver stands at its key or beyond
                run = rest.below(at_hand.spill.key, inclusive=True)
                if run:
                    yield from _join_spilled(rest.slice(0, run), at_hand.spill, emit)
                    rest = rest.slice(run, len(rest))
                if len(rest):
                    at_hand.drop_spill()
                continue
            if not at_hand.fill():
                yield from _alone(rest, mode, emit)
                break
            ready = len(rest) if at_hand.done else rest.below(at_hand.newest(), inclusive=False)
            if ready:
                part = rest.slice(0, ready)
                last = part.key(ready - 1)
                yield from _join(part, at_hand.rows(last), mode, emit)
                at_hand.forget_below(last)
                rest = rest.slice(ready, len(rest))
            if len(rest):
                at_hand.forget_below(rest.key(0))
                at_hand.read_on(pairs=mode in ("inner", "outer"))


class _Partner:
    """The partner rows that driving rows to come may still match."""

    def __init__(self, stream: Iterator[Chunk]) -> None:
        self._stream = stream
        self._held: list[Chunk] = []
        self.done = False
        self.spill: _Spill | None = None
        """The run of one key that outgrew memory; no other row is at hand then, except later ones."""

    def fill(self) -> bool:
        """Whether there is any row at hand."""
        if not self._held and not self.done:
            self._pull()
        return bool(self._held)

    def newest(self) -> Key:
        last = self._held[-1]
        return last.key(len(last) - 1)

    def rows(self, last: Key) -> Chunk:
        """What is at hand, up to this key."""
        self._held = [concat(self._held)]
        return self._held[0].slice(0, self._held[0].below(last, inclusive=True))

    def forget_below(self, key: Key) -> None:
        kept = []
        for chunk in self._held:
            n = chunk.below(key, inclusive=False)
            if n < len(chunk):
                kept.append(chunk.slice(n, len(chunk)))
        self._held = kept

    def read_on(self, pairs: bool) -> None:
        """Another chunk; a run that is too long for memory goes to a file, or where no pairs are formed to one row."""
        one_key = bool(self._held) and self._held[0].key(0) == self.newest()
        if one_key and not pairs:
            last = self._held[-1]
            self._held = [last.slice(len(last) - 1, len(last))]
        elif one_key and sum(c.nbytes for c in self._held) > LIMIT:
            self._spill_run()
            return
        self._pull()

    def _spill_run(self) -> None:
        self.spill = _Spill(self.newest())
        for chunk in self._held:
            self.spill.add(chunk)
        self._held = []
        while not self.done and not self._held:
            self._pull()
            for chunk in self._held:
                n = chunk.below(self.spill.key, inclusive=True)
                if n:
                    self.spill.add(chunk.slice(0, n))
                self._held = [chunk.slice(n, len(chunk))] if n < len(chunk) else []
        self.spill.close()

    def drop_spill(self) -> None:
        assert self.spill is not None
        self.spill.remove()
        self.spill = None

    def _pull(self) -> None:
        chunk = next((c for c in self._stream if len(c)), None)
        if chunk is None:
            self.done = True
        else:
            self._held.append(chunk)


class _Spill:
    """Rows of one key in a temporary Arrow file."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self._file = tempfile.TemporaryFile(prefix="evenkeel-")  # noqa: SIM115  it lives as long as the run
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, chunk: Chunk) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, chunk.rows.schema)
        step = max(1, int(len(chunk) * OUT_BYTES / max(1, chunk.nbytes)))
        for at in range(0, len(chunk), step):
            self._writer.write_batch(chunk.rows.slice(at, step))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def remove(self) -> None:
        self._file.close()


def _alone(part: Chunk, mode: Mode, emit: Emit) -> Iterator[pa.RecordBatch]:
    if mode in ("outer", "anti"):
        step = _out_rows(part, None)
        for at in range(0, len(part), step):
            picked = slice(at, min(at + step, len(part)))
            yield emit(part.rows, picked, None, None)


def _join(part: Chunk, partner: Chunk, mode: Mode, emit: Emit) -> Iterator[pa.RecordBatch]:
    """Driving rows against all partner rows they can match."""
    mine, theirs = codes([part.keys, partner.keys])
    starts = run_starts(theirs)
    heads = theirs[starts]
    lengths = np.diff(np.append(starts, len(theirs)))
    if len(part.keys) != 1 or not pa.types.is_int64(part.keys[0].type):  # codes of text follow no order
        order = np.argsort(heads, kind="stable")
        starts, heads, lengths = starts[order], heads[order], lengths[order]
    runs = run_starts(mine)
    if not len(heads):
        yield from _alone(part, mode, emit)
        return
    found = np.minimum(np.searchsorted(heads, mine[runs]), len(heads) - 1)
    hit = heads[found] == mine[runs]
    repeat = np.diff(np.append(runs, len(mine)))
    count = np.repeat(np.where(hit, lengths[found], 0), repeat)
    if mode in ("semi", "anti"):
        picks = np.flatnonzero(count > 0 if mode == "semi" else count == 0)
        step = _out_rows(part, None)
        for at in range(0, len(picks), step):
            yield emit(part.rows, _compact(picks[at : at + step]), None, None)
        return
    first = np.repeat(np.where(hit, starts[found], -1), repeat)
    shown = np.maximum(count, 1) if mode == "outer" else count
    ends = np.cumsum(shown)
    total = int(ends[-1]) if len(ends) else 0
    step = _out_rows(part, partner)
    for low in range(0, total, step):
        high = min(low + step, total)
        a, b = np.searchsorted(ends, [low, high - 1], side="right")
        before = ends[a : b + 1] - shown[a : b + 1]
        times = np.minimum(ends[a : b + 1], high) - np.maximum(before, low)
        rows = np.repeat(np.arange(a, b + 1), times)
        offset = np.arange(low, high) - np.repeat(before, times)
        lead = np.repeat(first[a : b + 1], times)
        yield emit(part.rows, _compact(rows), partner.rows, np.where(lead < 0, -1, lead + offset))


def _join_spilled(part: Chunk, spill: _Spill, emit: Emit) -> Iterator[pa.RecordBatch]:
    """Every driving row of the run with every spilled row; in memory: the chunk and one batch of the file."""
    for batch in spill.read():
        step = _out_rows(part, Chunk(batch, ()))
        total = len(part) * batch.num_rows
        for low in range(0, total, step):
            out = np.arange(low, min(low + step, total))
            yield emit(part.rows, out // batch.num_rows, batch, out % batch.num_rows)


def _compact(picks: np.ndarray[Any, Any]) -> Picks:
    """A slice where the rows follow one another: no copy is needed then."""
    if len(picks) and picks[-1] - picks[0] == len(picks) - 1 and (len(picks) < 2 or bool(np.all(np.diff(picks) == 1))):
        return slice(int(picks[0]), int(picks[-1]) + 1)
    return picks


def _out_rows(part: Chunk, partner: Chunk | None) -> int:
    width = part.nbytes / max(1, len(part))
    if partner is not None:
        width += partner.nbytes / max(1, len(partner))
    return int(min(OUT_ROWS, max(64, OUT_BYTES / max(1.0, width))))


def picked(rows: pa.RecordBatch, picks: Picks) -> pa.RecordBatch:
    """The picked rows; neighbours are a view of the batch."""
    if isinstance(picks, slice):
        return rows.slice(picks.start, picks.stop - picks.start)
    return rows.take(pa.array(picks))
