"""What is known of the keys of two inputs: sizes, NULLs, and the frequent keys of each side.

A key is known by the 64-bit hash that Spark routes by, so one form serves every key type and
composite keys; two keys that share a hash are merely planned for together. Everything here is an
estimate that only cost rests on, unless its side was read whole and its key list is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from evenkeel.types import Exact, Float64, Inexact, Int64, Precision, Side

SEEN_ENOUGH = 16
"""Of a sample, keys seen less often are part of the tail: a count of 16 has an error of a quarter."""


@dataclass(frozen=True, eq=False)
class WholeNumbers:
    """Keys that are single whole numbers, all of which were read."""

    least: int
    most: int
    """The smallest and the largest: exact. Of no keys at all 0 and -1."""
    some: Int64
    """A few hundred, for estimates."""


@dataclass(frozen=True, eq=False)
class SideStats:
    """The keys of one input. `keys` are hashes, heaviest first, with their row counts."""

    rows: Precision
    null_rows: Precision
    distinct: Precision
    keys: Int64
    counts: Float64
    complete: bool = False
    """Whether `keys` holds every key of the side."""
    fraction: float = 1.0
    """Which part of the rows was read."""
    numbers: WholeNumbers | None = None
    """What is known of every key as a number, if it is one and all were read."""

    @classmethod
    def from_sample(
        cls,
        rows: int,
        null_rows: int,
        distinct: float,
        keys: Int64,
        counts: Int64,
        fraction: float,
    ) -> SideStats:
        """Scale what a Bernoulli sample of rate `fraction` saw up to the whole side."""
        order = np.argsort(-counts, kind="stable")
        keys, counts = keys[order], counts[order]
        keyed = rows - null_rows
        complete = bool(counts.sum() >= keyed and distinct <= 1.1 * len(keys))
        if fraction >= 1.0:
            return cls(
                Exact(rows), Exact(null_rows), Inexact(distinct), keys, counts.astype(float), complete
            )
        enough = counts >= SEEN_ENOUGH
        known = int(enough.sum())
        tail_seen = max(0.0, keyed - float(counts[enough].sum()))
        tail_distinct = unseen_included(max(0.0, distinct - known), tail_seen)
        return cls(
            Inexact(rows / fraction),
            Inexact(null_rows / fraction),
            Inexact(known + tail_distinct),
            keys[enough],
            counts[enough] / fraction,
            complete and bool(enough.all()),
            fraction,
        )

    @property
    def row_count(self) -> float:
        return _number(self.rows)

    @property
    def null_count(self) -> float:
        return _number(self.null_rows)

    @property
    def tail_rows(self) -> float:
        """Rows with a key that is not among the known ones."""
        return max(0.0, self.row_count - self.null_count - float(self.counts.sum()))

    @property
    def tail_keys(self) -> float:
        if self.complete:
            return 0.0
        return max(1.0, _number(self.distinct) - len(self.keys), self.tail_rows / max(1.0, self._floor))

    @property
    def _floor(self) -> float:
        """The rarest known key: a key of the tail has hardly more rows."""
        return float(self.counts[-1]) if len(self.counts) else self.row_count

    def count_of(self, keys: Int64) -> Float64:
        """The expected number of rows of each key; a key of the tail gets the tail's average."""
        missing = 0.0 if self.complete else min(self._floor, self.tail_rows / self.tail_keys)
        if not len(self.keys):
            return np.full(len(keys), missing)
        order = np.argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys[order], keys), len(order) - 1)
        found = self.keys[order][at] == keys
        return np.where(found, self.counts[order][at], missing)


@dataclass(frozen=True, eq=False)
class JoinStats:
    """Both sides together, and what follows for the output."""

    left: SideStats
    right: SideStats
    seconds: float = 0.0
    """How long it took to collect them."""
    labels: dict[int, str] = field(default_factory=dict)
    """Keys as text, for people."""

    def of(self, side: Side) -> SideStats:
        return self.left if side == "left" else self.right

    @property
    def input_rows(self) -> float:
        return self.left.row_count + self.right.row_count

    def known_keys(self) -> tuple[Int64, Float64, Float64]:
        """Every key known on either side, with its rows on the left and on the right."""
        keys = np.unique(np.concatenate([self.left.keys, self.right.keys]))
        return keys, self.left.count_of(keys), self.right.count_of(keys)

    def tail(self, left_known: Float64, right_known: Float64) -> tuple[float, float, float]:
        """Rows of the keys that are not known, left and right, and the pairs they make.

        The pairs assume that the smaller key set is contained in the larger, as optimizers do.
        """
        left = max(0.0, self.left.row_count - self.left.null_count - float(left_known.sum()))
        right = max(0.0, self.right.row_count - self.right.null_count - float(right_known.sum()))
        keys = max(self.left.tail_keys, self.right.tail_keys, 1.0)
        return left, right, left * right / keys

    def label(self, key: int) -> str:
        return self.labels.get(int(key), f"key hash {int(key):016x}" if key >= 0 else f"key hash {int(key)}")


def unseen_included(distinct: float, rows: float) -> float:
    """How many keys there are, when `rows` draws from equally frequent keys showed `distinct` of them.

    Solves D * (1 - exp(-rows / D)) = distinct by bisection; D is capped at a thousand times what was seen.
    """
    if distinct <= 0 or rows <= 0:
        return distinct
    if distinct >= rows:
        return distinct * 1000.0
    low, high = distinct, distinct * 1000.0
    for _ in range(60):
        mid = (low + high) / 2
        if mid * -np.expm1(-rows / mid) < distinct:
            low = mid
        else:
            high = mid
    return (low + high) / 2


def _number(value: Precision) -> float:
    return value.value if isinstance(value, (Exact, Inexact)) else 0.0
