"""What is known of two inputs whose rows match by range: their keys in order, and a sample of the output.

A key is (h, x): the hash of the equalities, where there are any, then the position of the band. Sorted, the keys of
an input are one axis of the join matrix; its rows that match a given row of the other input are one run of it:

    partners of (h, x)  =  the keys (h, y) with x - hi <= y <= x - lo

so the size of every run is known from two binary searches, their sum is the exact number m of pairs, and drawing
pairs evenly is drawing numbers below m: Stream-Sample (Squall, section 4.4.1) without a reservoir.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenkeel.types import Exact, Float64, Inexact, Int64, Precision, Side


@dataclass(frozen=True, eq=False)
class Axis:
    """The keys of one input in order, or of an even sample of it."""

    hash: Int64 | None
    """None where the condition has no equality."""
    x: Float64
    rows: Precision
    null_rows: Precision
    """Rows with a NULL in the key: they match nothing."""
    fraction: float = 1.0

    @classmethod
    def of(cls, hash_: Int64 | None, x: Float64, rows: Precision, null_rows: Precision, fraction: float = 1.0) -> Axis:
        if hash_ is None:
            return cls(None, np.sort(x), rows, null_rows, fraction)
        order = np.lexsort((x, hash_))
        return cls(hash_[order], x[order], rows, null_rows, fraction)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def row_count(self) -> float:
        return self.rows.value if isinstance(self.rows, (Exact, Inexact)) else 0.0

    @property
    def null_count(self) -> float:
        return self.null_rows.value if isinstance(self.null_rows, (Exact, Inexact)) else 0.0

    @property
    def weight(self) -> float:
        """How many rows a key of this axis stands for."""
        return (self.row_count - self.null_count) / max(1, len(self))

    def find(self, hash_: Int64 | None, x: Float64, after: bool) -> Int64:
        """Where keys would be inserted: before all equal ones, or after."""
        if self.hash is None or hash_ is None:
            return np.searchsorted(self.x, x, side="right" if after else "left")
        low = np.searchsorted(self.hash, hash_, side="left")
        high = np.searchsorted(self.hash, hash_, side="right")
        # Bisection inside every run of one hash, all runs at once.
        while True:
            open_ = low < high
            if not open_.any():
                return low
            mid = (low + high) // 2
            at = self.x[np.minimum(mid, len(self) - 1)]
            up = open_ & ((at <= x) if after else (at < x))
            low = np.where(up, mid + 1, low)
            high = np.where(open_ & ~up, mid, high)

    def take(self, at: Int64) -> tuple[Int64 | None, Float64]:
        return (None if self.hash is None else self.hash[at]), self.x[at]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Pairs drawn evenly from the whole output where the axes are but samples, and how many pairs there are."""

    pairs: float
    hash: Int64
    x: Float64
    y: Float64


@dataclass(frozen=True, eq=False)
class RangeStats:
    """Both axes and the range of differences, slack included, that may match."""

    left: Axis
    right: Axis
    lo: float
    hi: float
    slack: float
    seed: int = 20190415
    drawn: Drawn | None = None

    def of(self, side: Side) -> Axis:
        return self.left if side == "left" else self.right

    def reach(self, x: Float64) -> tuple[Float64, Float64]:
        """The lowest and the highest right position that a left position may match, rounding allowed for."""
        err = self.slack * np.abs(np.where(np.isfinite(x), x, 0.0))
        with np.errstate(invalid="ignore", over="ignore"):
            low = x - self.hi - err - self.slack * abs(self.hi) if np.isfinite(self.hi) else np.full(len(x), -np.inf)
            high = x - self.lo + err + self.slack * abs(self.lo) if np.isfinite(self.lo) else np.full(len(x), np.inf)
        return low, high

    @cached_property
    def _runs(self) -> tuple[Int64, Int64]:
        """For every left key the first partner on the right axis, and how many pairs there are up to it and with it."""
        low, high = self.reach(self.left.x)
        first = self.right.find(self.left.hash, low, after=False)
        count = np.maximum(self.right.find(self.left.hash, high, after=True) - first, 0)
        return first, np.cumsum(count)

    @property
    def exact(self) -> bool:
        return self.left.fraction == 1.0 and self.right.fraction == 1.0

    @property
    def pairs(self) -> Precision:
        """m: how many pairs are within the range."""
        if self.drawn is not None:
            return Exact(self.drawn.pairs)
        total = float(self._runs[1][-1]) if len(self.left) else 0.0
        m = total * self.left.weight * self.right.weight
        return Exact(m) if self.exact else Inexact(m)

    @property
    def pair_count(self) -> float:
        m = self.pairs
        return m.value if isinstance(m, (Exact, Inexact)) else 0.0

    @property
    def input_rows(self) -> float:
        return self.left.row_count + self.right.row_count

    def sample_pairs(self, size: int) -> tuple[Int64, Int64]:
        """Pairs drawn evenly and independently from the whole output, as places on the two axes."""
        if self.drawn is not None:
            return self._drawn_pairs(self.drawn, size)
        first, ends = self._runs
        total = int(ends[-1]) if len(ends) else 0
        if not total or not size:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        drawn = np.sort(np.random.default_rng(self.seed).integers(0, total, size))
        left = np.searchsorted(ends, drawn, side="right")
        start = np.where(left > 0, ends[np.maximum(left - 1, 0)], 0)
        return left, first[left] + drawn - start

    def _drawn_pairs(self, drawn: Drawn, size: int) -> tuple[Int64, Int64]:
        """Drawn keys as places on the sampled axes: any place among equal keys, or where the key would be."""
        rng = np.random.default_rng(self.seed)
        some = rng.permutation(len(drawn.x))[:size]
        places = []
        for axis, x in ((self.left, drawn.x[some]), (self.right, drawn.y[some])):
            hash_ = None if axis.hash is None else drawn.hash[some]
            first, end = axis.find(hash_, x, after=False), axis.find(hash_, x, after=True)
            inside = first + (rng.random(len(x)) * (end - first)).astype(np.int64)
            places.append(np.clip(inside, 0, max(0, len(axis) - 1)))
        return places[0], places[1]
