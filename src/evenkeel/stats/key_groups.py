"""What is known of one relation of a multi-way join: its rows by the join values that stand out.

A sample of rows is kept with all its join attributes together, so that skew that shows in several attributes at
once is seen as what it is. Values seen often enough are known by name (by their 64-bit hash); all others of an
attribute are light, and spread like chaff. Rows that agree in their known values make a group:

    (partkey = 17, suppkey = 4)   61,000 rows
    (partkey = 17, suppkey light)    900 rows
    (both light)                 300,000 rows

Everything here is an estimate that only cost rests on, unless all rows were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from evenkeel.stats.join_stats import SEEN_ENOUGH, unseen_included
from evenkeel.types import Bool, Exact, Float64, Inexact, Int64, Precision

MOST_KNOWN = 4096
"""Values of an attribute that are known by name."""


@dataclass(frozen=True, eq=False)
class KeyGroups:
    rows: Precision
    attributes: tuple[int, ...]
    """The attributes of the relation; columns of `keys` and `known`."""
    keys: Int64
    """One row a group: the hash of each attribute's value, 0 where it is light."""
    known: Bool
    counts: Float64
    distinct: dict[int, float] = field(default_factory=dict)
    """How many values the light rows of an attribute have."""
    fraction: float = 1.0
    """Which part of the rows was read."""
    together: dict[tuple[int, ...], float] = field(default_factory=dict)
    """How many combinations of values some attributes have."""
    labels: dict[int, dict[int, str]] = field(default_factory=dict)
    """Values as text, for people: attribute -> hash -> text."""

    @classmethod
    def even(cls, rows: float, attributes: tuple[int, ...]) -> KeyGroups:
        """A relation of which only the size is known: no value stands out."""
        none = np.zeros((1, len(attributes)))
        return cls(Exact(rows), attributes, none.astype(np.int64), none.astype(bool), np.array([float(rows)]))

    @classmethod
    def from_sample(
        cls,
        rows: float,
        attributes: tuple[int, ...],
        hashes: Int64,
        fraction: float = 1.0,
        together: Iterable[tuple[int, ...]] = (),
    ) -> KeyGroups:
        """Group a sample of the relation's rows, of which there are `rows` in all.

        Combinations of values are counted for the attributes in `together`: those are rarely independent.
        """
        size: Precision = Exact(rows) if fraction >= 1.0 else Inexact(rows)
        n, width = hashes.shape
        code = np.zeros(n, dtype=np.int64)
        listed: list[tuple[Int64, Int64]] = []
        distinct = {}
        for j, attribute in enumerate(attributes):
            values, inverse, counts = np.unique(hashes[:, j], return_inverse=True, return_counts=True)
            stands_out = counts >= SEEN_ENOUGH
            if stands_out.sum() > MOST_KNOWN:
                stands_out = np.zeros(len(counts), dtype=bool)
                stands_out[np.argsort(-counts, kind="stable")[:MOST_KNOWN]] = True
            # 0 for all light values, then the known ones: a digit of the group's number
            digit = np.where(stands_out, np.cumsum(stands_out), 0)[inverse]
            places, code = np.unique(code * (int(stands_out.sum()) + 1) + digit, return_inverse=True)
            listed.append((values[stands_out], places % (int(stands_out.sum()) + 1)))
            listed[:-1] = [(v, d[places // (int(stands_out.sum()) + 1)]) for v, d in listed[:-1]]
            light = float((~stands_out).sum())
            unseen = float((digit == 0).sum())
            distinct[attribute] = light if fraction >= 1.0 else unseen_included(light, unseen)
        groups = int(code.max()) + 1 if n else 0
        keys = np.zeros((groups, width), dtype=np.int64)
        known = np.zeros((groups, width), dtype=bool)
        for j, (values, digits) in enumerate(listed):
            known[:, j] = digits > 0
            keys[known[:, j], j] = values[digits[known[:, j]] - 1]
        counts = np.bincount(code, minlength=groups) * (float(rows) / max(1, n))
        combined = {}
        for several in together:
            mixed = np.zeros(n, dtype=np.int64)
            for a in several:
                mixed = (mixed * 31 + hashes[:, attributes.index(a)]) * 2654435761
            seen = float(len(np.unique(mixed)))
            combined[several] = min(float(rows), seen if fraction >= 1.0 else unseen_included(seen, float(n)))
        return cls(size, attributes, keys, known, counts.astype(np.float64), distinct, fraction, combined)

    @cached_property
    def total(self) -> float:
        return float(self.counts.sum())

    def column(self, attribute: int) -> int:
        return self.attributes.index(attribute)

    def values(self, attribute: int) -> tuple[Int64, Float64]:
        """The known values of an attribute with their rows, most frequent first."""
        if attribute not in self._values:
            j = self.column(attribute)
            keys, inverse = np.unique(self.keys[self.known[:, j], j], return_inverse=True)
            counts = np.bincount(inverse, self.counts[self.known[:, j]], len(keys)).astype(np.float64)
            order = np.argsort(-counts, kind="stable")
            self._values[attribute] = keys[order], counts[order]
        return self._values[attribute]

    @cached_property
    def _values(self) -> dict[int, tuple[Int64, Float64]]:
        return {}

    def light_rows(self, attribute: int) -> float:
        return max(0.0, self.total - float(self.values(attribute)[1].sum()))

    def light_values(self, attribute: int) -> float:
        """How many values the light rows have: at least so many that none is more frequent than a known one."""
        if self.light_rows(attribute) <= 0:
            return 0.0
        counts = self.values(attribute)[1]
        least = self.light_rows(attribute) / float(counts[-1]) if len(counts) else 1.0
        rows = self.light_rows(attribute)
        return max(1.0, least, min(rows, self.distinct.get(attribute, rows)))

    def top_share(self, attribute: int) -> float:
        """The part of the rows that hold the most frequent value."""
        counts = self.values(attribute)[1]
        if not self.total:
            return 0.0
        light = self.light_rows(attribute)
        rarest = light / self.light_values(attribute) if light else 0.0
        return max(float(counts[0]) if len(counts) else 0.0, rarest) / self.total

    def where(self, attribute: int, values: Int64, inside: bool) -> KeyGroups:
        """The rows whose attribute has one of these values, or none; a value not known has the rows of a light one."""
        j = self.column(attribute)
        light = ~self.known[:, j]
        hit = ~light & np.isin(self.keys[:, j], values)
        unknown = len(values) - len(np.intersect1d(values, self.values(attribute)[0]))
        part = min(1.0, unknown / self.light_values(attribute)) if light.any() and unknown else 0.0
        weight = np.where(light, part, hit)
        weight = weight if inside else 1.0 - weight
        keep = weight > 0
        counts = self.counts[keep] * weight[keep]
        return replace(self, keys=self.keys[keep], known=self.known[keep], counts=counts)

    def label(self, attribute: int, key: int) -> str:
        return self.labels.get(attribute, {}).get(int(key), f"hash {int(key)}")


def matches(one: KeyGroups, two: KeyGroups, attribute: int) -> float:
    """How many pairs agree in the attribute: known values one by one, light ones by containment."""
    keys = np.union1d(one.values(attribute)[0], two.values(attribute)[0])
    here, there = (_counts_of(g, attribute, keys) for g in (one, two))
    light = [max(0.0, g.total - float(c.sum())) for g, c in ((one, here), (two, there))]
    spread = max(one.light_values(attribute), two.light_values(attribute), 1.0)
    return float(here @ there) + light[0] * light[1] / spread


def _counts_of(groups: KeyGroups, attribute: int, keys: Int64) -> Float64:
    """The rows of each value; a value that is not known has as many as a light one, if there are so many of those."""
    known, counts = groups.values(attribute)
    missing = len(keys) - len(np.intersect1d(keys, known))
    light = groups.light_rows(attribute) / max(1.0, groups.light_values(attribute), float(missing))
    if not len(known):
        return np.full(len(keys), light)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], keys), len(order) - 1)
    return np.where(known[order][at] == keys, counts[order][at], light)
