"""One cube for some rows: which attributes and which relations get a dimension, and how many parts each.

An attribute is a dimension of all relations that hash by it. A relation whose rows hold a hot value, or that no
equality divides, is renamed there (Squall thesis, section 5.2): it leaves the attribute's dimension and is spread
row by row along one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenkeel.schemes.hypercube.layout import ROW, Dimension, cell_rows
from evenkeel.schemes.hypercube.shares import Sharing, best_shares
from evenkeel.stats import KeyGroups
from evenkeel.types import Float64

Renamed = frozenset[tuple[int, int]]
"""Pairs (relation, attribute) that are not hashed."""
TRACKED = 64
"""The most frequent values whose bins are followed one by one when parts are weighed."""
MOST_DIMENSIONS = 12
"""Dimensions of a cube that the search for parts is given; enough for any number of cells."""
EXACT_BINS = 256
"""Up to so many parts the bins of those values are counted; beyond, they hardly share one."""


@dataclass(frozen=True, eq=False)
class Cube:
    dimensions: tuple[Dimension, ...]
    """Those with more than one part."""
    load: float
    """The heaviest cell, if the heaviest parts of all relations met in it."""
    shipped: float
    cells: int

    def heaviest(self, groups: Sequence[KeyGroups]) -> float:
        """The heaviest cell, with every value in its bin."""
        rows = np.zeros(tuple(d.share for d in self.dimensions))
        for i, g in enumerate(groups):
            rows += cell_rows(i, g, self.dimensions)
        return float(rows.max())


class CubeFitter:
    """Fits cubes to the rows of some relations; what it learns of their skew serves every attempt."""

    def __init__(self, groups: Sequence[KeyGroups], attributes: Sequence[tuple[int, ...]], workers: int) -> None:
        self.groups = tuple(groups)
        self.attributes = tuple(attributes)
        """The attributes that may divide each relation."""
        self.workers = workers
        self._tables: dict[tuple[int, int], Float64] = {}

    def table(self, relation: int, attribute: int) -> Float64:
        """The part of a relation's rows in the heaviest of p bins, for p up to `workers`."""
        key = (relation, attribute)
        if key not in self._tables:
            self._tables[key] = heaviest_bins(self.groups[relation], attribute, self.workers)
        return self._tables[key]

    @property
    def bare(self) -> frozenset[int]:
        """Relations that no attribute divides: they are spread, or every cell would receive all of them."""
        return frozenset(i for i, mine in enumerate(self.attributes) if not mine)

    def skewed(self) -> list[tuple[int, int]]:
        """Pairs whose most frequent value is more than an even part, most rows first."""
        found = []
        for i, mine in enumerate(self.attributes):
            for a in mine:
                share = self.groups[i].top_share(a)
                if share > 1.0 / self.workers:
                    found.append((-share * self.groups[i].total, i, a))
        return [(i, a) for _, i, a in sorted(found)]

    def fit(self, renamed: Renamed, spread: frozenset[int], workers: int, as_if_even: bool = False) -> Cube:
        """The best parts when `renamed` are not hashed by and the relations in `spread` have a dimension of rows."""
        dims, sharing = self._sharing(renamed, spread, as_if_even)
        shares = best_shares(sharing, workers)
        cells = int(np.prod(shares, dtype=np.int64))
        return Cube(_used(dims, shares), sharing.load(shares), sharing.shipped(shares), cells)

    def ladder(self, renamed: Renamed, spread: frozenset[int], most: int) -> list[Cube]:
        """Growing cubes up to `most` cells: how the load falls, at a fraction of a fit's cost.

        Each step grows the dimension that lightens the heaviest cell most for the cells it adds.
        """
        dims, sharing = self._sharing(renamed, spread, as_if_even=False)
        rows, shares = sharing.rows.copy(), [1] * len(dims)
        steps = [Cube((), float(rows.sum()), float(rows.sum()), 1)]
        inside = [np.array([d in mine for mine in sharing.dims]) for d in range(len(dims))]
        while True:
            best: tuple[float, int, int, Float64] | None = None
            cells = int(np.prod(shares, dtype=np.int64))
            for d, share in enumerate(shares):
                grown = share + max(1, share // 8)
                if cells // share * grown > most:
                    continue
                loads = rows.copy()
                for i in np.flatnonzero(inside[d]):
                    h = sharing.heaviest.get((int(i), d))
                    loads[i] *= share / grown if h is None else h[grown] / h[share]
                gain = np.log(max(rows.sum(), 1e-300) / max(loads.sum(), 1e-300)) / np.log(grown / share)
                if best is None or gain > best[0]:
                    best = float(gain), d, grown, loads
            if best is None or best[0] <= 0:
                return steps
            _, d, shares[d], rows = best
            cells = int(np.prod(shares, dtype=np.int64))
            steps.append(Cube(_used(dims, shares), float(rows.sum()), sharing.shipped(shares), cells))

    def _sharing(
        self, renamed: Renamed, spread: frozenset[int], as_if_even: bool
    ) -> tuple[list[tuple[int, frozenset[int]]], Sharing]:
        """The dimensions there may be, and how they divide the relations."""
        sources = sorted({a for mine in self.attributes for a in mine})
        dims: list[tuple[int, frozenset[int]]] = []
        for a in sources:
            hashed = frozenset(i for i, mine in enumerate(self.attributes) if a in mine and (i, a) not in renamed)
            if hashed:
                dims.append((a, hashed))
        dims += [(ROW, frozenset({i})) for i in sorted(spread | {i for i, _ in renamed})]
        if len(dims) > MOST_DIMENSIONS:  # those that divide most rows; along the others there is one part
            dims = sorted(dims, key=lambda d: -sum(self.groups[i].total for i in d[1]))[:MOST_DIMENSIONS]
        of = tuple(frozenset(d for d, (_, rel) in enumerate(dims) if i in rel) for i in range(len(self.groups)))
        tables = {}
        if not as_if_even:
            for d, (a, hashed) in enumerate(dims):
                if a != ROW:
                    tables.update({(i, d): self.table(i, a) for i in hashed})
        return dims, Sharing(np.array([g.total for g in self.groups]), of, len(dims), tables)


def _used(dims: list[tuple[int, frozenset[int]]], shares: Sequence[int]) -> tuple[Dimension, ...]:
    return tuple(Dimension(a, rel, p) for (a, rel), p in zip(dims, shares, strict=True) if p > 1)


def heaviest_bins(groups: KeyGroups, attribute: int, workers: int) -> Float64:
    """h[p]: the part of the rows in the heaviest of p bins that values are hashed to; h[0] is unused."""
    parts = np.arange(workers + 1, dtype=np.float64)
    parts[0] = 1.0
    total = groups.total
    if total <= 0:
        return 1.0 / parts
    keys, counts = groups.values(attribute)
    top, top_counts = keys[:TRACKED], counts[:TRACKED]
    others = total - float(top_counts.sum())
    values = groups.light_values(attribute) + max(0, len(keys) - TRACKED)
    even = others / np.minimum(parts, max(1.0, values))
    hottest = np.full(workers + 1, float(top_counts[0]) if len(top) else 0.0)
    exact = min(workers, EXACT_BINS)
    if len(top):
        p = np.arange(1, exact + 1)
        bins = np.mod(top[None, :], p[:, None]) + (p * (p - 1) // 2)[:, None]
        weights = np.broadcast_to(top_counts, bins.shape)
        sums = np.bincount(bins.ravel(), weights.ravel(), exact * (exact + 1) // 2)
        hottest[1 : exact + 1] = np.maximum.reduceat(sums, p * (p - 1) // 2)
    return np.clip((hottest + even) / total, 1.0 / parts, 1.0)
