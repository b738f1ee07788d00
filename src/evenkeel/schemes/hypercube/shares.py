"""Shares: each dimension of a cube is given a whole number of parts, so that the heaviest cell receives least.

A relation is divided along its own dimensions and copied along the others. With R(y), S(y, z), T(z) of H rows each
and 64 workers, y and z get eight parts each:

           z  1   2  ...  8       a row of R is hashed on y and goes to the eight cells of one row
       y 1  [ ] [ ] ... [ ]       a row of T is hashed on z and goes to the eight cells of one column
       y 2  [ ] [ ] ... [ ]       a row of S goes to one cell
       ...                        a cell receives H/8 + H/64 + H/8 = 0.27 H
       y 8  [ ] [ ] ... [ ]       shipped are 8 H + H + 8 H = 17 H

    bound(node) = least load of its cubes when the parts need not be whole numbers
    nodes = [nothing chosen]
    while nodes: take the lexicographically first ones, choose the parts of one more dimension in all ways,
                 drop those whose bound is above the best load so far, or equal and no better otherwise

Invariant: a vector that was dropped loads no less than the best one, and if as much, ships no less.
Cost: for each node a product with at most `MOST_WEIGHTS` vectors of weights; nodes are few where the bound is near.
Source: the integer search is that of Chu, Balazinska and Suciu, which tries all vectors; dimensions and load are
those of the Squall thesis, section 5.2. The bound is added here.

For weights a_i >= 0 of sum 1 and a price m >= 0 the means of w_i prod_d h_id[p_d] give

    log load >= sum_i a_i log(w_i / a_i) + sum_d min_p (sum_i a_i log h_id[p] + m log p) - m log budget

whatever the tables h hold. The weights that make it largest are each relation's part of the load at the best cube of
fractional parts; those found for some nodes serve all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from evenkeel.types import Bool, Float64, Int64

TIE = 1e-9
"""Loads, and rows shipped, that differ relatively by no more are equal."""
MOST_NODES = 4_000_000
"""Nodes at the most; then the best vector so far is returned, and it may not be the best of all."""
MOST_WEIGHTS = 128
"""Vectors of weights that are kept for the bounds of one level."""
FEW = 400
"""So few nodes are not worth new weights."""
SAMPLE = 16
"""Nodes that new weights are made for at a time."""
STARTS, STARTS_TILT, DESCENTS = 16, 0.02, 3
"""Fractional cubes to begin with, how much dearer some dimensions are made for them, and how many are improved."""
BEAM = 1000
"""Nodes of a level that are followed at a time; at first these only, evenly spread, to find a good vector."""
CHUNK = 40_000
"""Nodes that are made at a time, if there are so many."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """How relations divide over the dimensions of a cube."""

    rows: Float64
    """Rows of each relation."""
    dims: tuple[frozenset[int], ...]
    """Which dimensions divide each relation; where there are none, every cell receives all of it."""
    dimensions: int
    """How many dimensions there are."""
    heaviest: dict[tuple[int, int], Float64] = field(default_factory=dict)
    """For (relation, dimension) the part of the rows in the heaviest of p bins at index p; 1/p where absent.

    Index 0 is unused. The part is between 1/p and 1, and may grow with p.
    """

    def load(self, shares: Sequence[int]) -> float:
        """Rows that the heaviest cell receives."""
        total = 0.0
        for i, (rows, dims) in enumerate(zip(self.rows.tolist(), self.dims, strict=True)):
            for d in sorted(dims):
                rows *= float(self.heaviest[i, d][shares[d]]) if (i, d) in self.heaviest else 1 / shares[d]
            total += rows
        return total

    def shipped(self, shares: Sequence[int]) -> float:
        """Rows that all cells receive together."""
        total = 0.0
        for rows, dims in zip(self.rows.tolist(), self.dims, strict=True):
            for d in range(self.dimensions):
                rows *= 1 if d in dims else shares[d]
            total += rows
        return total


def best_shares(sharing: Sharing, workers: int) -> tuple[int, ...]:
    """The parts of each dimension, at most `workers` cells in all, that minimise the load of the heaviest cell.

    Of equal loads the one that ships least, of these the lexicographically smallest. A dimension gets one part where
    another, evenly divided, divides the same relations and more. Past `MOST_NODES` nodes the best vector so far is
    returned; chains, stars, cycles and cliques of ten dimensions and 4,096 workers stay far below.
    """
    return _Search(sharing, workers).run()


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Vectors whose first dimensions are chosen, in lexicographic order."""

    level: int
    """How many dimensions are chosen."""
    shares: Int64
    """The parts of each dimension, one where not chosen."""
    budget: Int64
    """How many parts the others can make together."""
    weights: Float64
    """Logarithm of the rows of each relation in the heaviest of the parts so far."""
    bound: Float64
    """Logarithm of a load that none goes below."""
    price: Float64
    """By how much the bound grows when the budget shrinks, both as logarithms."""

    def __getitem__(self, index: slice | Int64 | Bool) -> _Nodes:
        return _Nodes(
            self.level,
            self.shares[index],
            self.budget[index],
            self.weights[index],
            self.bound[index],
            self.price[index],
        )

    def __len__(self) -> int:
        return len(self.budget)


class _Search:
    """Branch and bound over the dimensions that can get more than one part."""

    def __init__(self, sharing: Sharing, workers: int) -> None:
        self.sharing, self.workers = sharing, workers
        relations = np.flatnonzero(sharing.rows > 0).tolist()
        self.log_rows = np.log(sharing.rows[relations])
        values = _worthwhile(sharing, relations, workers)
        self.dims = [d for d in range(sharing.dimensions) if len(values[d]) > 1]
        self.values = [values[d] for d in self.dims]
        self.log_values = [np.log(v) for v in self.values]
        self.divides = np.array([[d in sharing.dims[i] for d in self.dims] for i in relations], dtype=np.bool_)
        self.divides = self.divides.reshape(len(relations), len(self.dims))
        self.log_parts = [
            np.log([_parts(sharing, i, d, workers)[v] for i in relations])
            for d, v in zip(self.dims, self.values, strict=True)
        ]
        """Of each dimension, the logarithm of the heaviest part for each relation and each number of parts."""
        self.even = not any(key in sharing.heaviest for key in ((i, d) for i in relations for d in self.dims))
        # What remains of a relation when a dimension is divided without end, as if one key had it.
        least = [np.exp(parts.min(axis=1)) for parts in self.log_parts]
        self.floor = np.array(least).reshape(len(self.dims), len(relations)).T
        most = np.array([v[-1] for v in self.values])
        self.floor = np.clip((self.floor * most - 1) / np.maximum(most - 1, 1), 0, 1 - 1e-9)
        self.bounds = [_Bounds(self, level) for level in range(len(self.dims) + 1)]
        self.nodes = 0
        self.best = np.ones(len(self.dims), dtype=np.int64)
        self.log_load, self.shipped = self._judged(self.best)

    @property
    def exhaustive(self) -> bool:
        """Whether nothing was left out."""
        return self.nodes < MOST_NODES

    def run(self) -> tuple[int, ...]:
        if self.dims:
            root = _Nodes(
                0,
                np.ones((1, len(self.dims)), dtype=np.int64),
                np.array([self.workers]),
                self.log_rows[None, :],
                np.full(1, -np.inf),
                np.zeros(1),
            )
            self.bounds[0].learn(root)
            for start in self._starts():
                self._descend(start)
            self._dive(root)
            stack = [self._bounded(root)]
            while stack and self.exhaustive:
                self._step(stack)
        return self._vector(self.best)

    def _step(self, stack: list[_Nodes]) -> None:
        nodes = stack.pop()
        nodes = nodes[self._promising(nodes)]
        if not len(nodes):
            return
        if len(nodes) > BEAM:
            stack.append(nodes[BEAM:])
            nodes = nodes[:BEAM]
        first, stop = self._range(nodes)
        made = np.cumsum(stop - first)
        taken = max(1, int(np.searchsorted(made, CHUNK, side="right")))
        if taken < len(nodes):
            stack.append(nodes[taken:])
        children = self._children(nodes[:taken], first[:taken], stop[:taken])
        self.nodes += len(children)
        if children.level == len(self.dims):
            self._settle(children)
        elif len(children):
            stack.append(self._bounded(children))

    def _dive(self, nodes: _Nodes) -> None:
        """Level by level, some of the nodes, evenly spread: a better vector to begin with."""
        nodes = self._bounded(nodes)
        while len(nodes):
            first, stop = self._range(nodes)
            thinned = slice(None, None, 1 + int((stop - first).sum()) // (4 * CHUNK))
            nodes = self._children(nodes[thinned], first[thinned], stop[thinned])
            if nodes.level == len(self.dims):
                return self._settle(nodes)
            nodes = self._bounded(nodes)
            if len(nodes) > BEAM:
                nodes = nodes[np.linspace(0, len(nodes) - 1, BEAM).astype(np.int64)]

    def _range(self, nodes: _Nodes) -> tuple[Int64, Int64]:
        """Which numbers of parts of the next dimension are worth a node, as a range of indices."""
        return self.bounds[nodes.level + 1].within(nodes, self.log_load + TIE)

    def _children(self, nodes: _Nodes, first: Int64, stop: Int64) -> _Nodes:
        level, count = nodes.level, stop - first
        parent = np.repeat(np.arange(len(nodes)), count)
        index = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count) + first[parent]
        value = self.values[level][index]
        shares = nodes.shares[parent]
        shares[:, level] = value
        weights = nodes.weights[parent] + self.log_parts[level].T[index]
        budget = nodes.budget[parent] // value
        return _Nodes(level + 1, shares, budget, weights, nodes.bound[parent], nodes.price[parent])

    def _bounded(self, nodes: _Nodes) -> _Nodes:
        """Those that may hold the best, bounds included; where they are many, by weights made for some of them."""
        bounds = self.bounds[nodes.level]
        nodes = bounds.apply(nodes, 0)
        nodes = nodes[self._promising(nodes)]
        while len(nodes) > FEW and len(bounds) + SAMPLE <= MOST_WEIGHTS:
            known = len(bounds)
            bounds.learn(nodes[np.linspace(0, len(nodes) - 1, SAMPLE).astype(np.int64)])
            before = len(nodes)
            nodes = bounds.apply(nodes, known)
            nodes = nodes[self._promising(nodes)]
            if len(nodes) > 0.9 * before:
                break
        return nodes

    def _promising(self, nodes: _Nodes) -> Bool:
        """Whether the node may hold a vector that loads less, or as much and ships less, or else comes earlier."""
        keep = nodes.bound <= self.log_load + TIE
        tied = np.flatnonzero(keep & (nodes.bound >= self.log_load - TIE))
        if len(tied):
            keep[tied] = self._better_though_tied(nodes[tied])
        return keep

    def _better_though_tied(self, nodes: _Nodes) -> Bool:
        # A budget smaller by one would be too small: the load is reached only when all of it is used.
        all_used = nodes.price * np.log1p(1 / nodes.budget) > 4 * TIE
        rest = np.where(all_used, nodes.budget, 1).astype(np.float64)
        copies = np.log(nodes.shares) @ ~self.divides.T
        undivided = ~self.divides[:, nodes.level :].any(axis=1)
        shipped = np.exp(self.log_rows + copies + np.log(rest)[:, None] * undivided).sum(axis=1)
        if self.even:  # then a cell receives on average what the heaviest receives
            shipped = np.maximum(shipped, np.exp(nodes.bound) * nodes.shares.prod(axis=1) * rest)
        earlier = _lexicographically_before(nodes.shares, self.best)
        better: Bool = (shipped < self.shipped * (1 - TIE)) | (earlier & (shipped <= self.shipped * (1 + TIE)))
        return better

    def _settle(self, leaves: _Nodes) -> None:
        """The best of these, if it is better than the best so far."""
        loads = np.logaddexp.reduce(leaves.weights, axis=1)
        leaves = leaves[loads <= min(self.log_load, loads.min(initial=np.inf)) + TIE]
        if len(leaves):
            copies = self.log_rows + np.log(leaves.shares) @ ~self.divides.T
            shipped = np.logaddexp.reduce(copies, axis=1)
            # They are in lexicographic order.
            self._offer(leaves.shares[int(np.flatnonzero(shipped <= shipped.min() + TIE)[0])])

    def _offer(self, shares: Int64) -> None:
        """The best so far from now on, if it is better."""
        log_load, shipped = self._judged(shares)
        if log_load > self.log_load + TIE:
            return
        if log_load >= self.log_load - TIE:
            earlier = bool(_lexicographically_before(shares[None, :], self.best)[0])
            if shipped > self.shipped * (1 + TIE) or (shipped >= self.shipped * (1 - TIE) and not earlier):
                return
        self.best, self.log_load, self.shipped = shares, log_load, shipped

    def _judged(self, shares: Int64) -> tuple[float, float]:
        vector = self._vector(shares)
        load = self.sharing.load(vector)
        return float(np.log(load)) if load > 0 else -np.inf, self.sharing.shipped(vector)

    def _vector(self, shares: Int64) -> tuple[int, ...]:
        vector = [1] * self.sharing.dimensions
        for d, share in zip(self.dims, shares.tolist(), strict=True):
            vector[d] = share
        return tuple(vector)

    def _starts(self) -> list[Int64]:
        """Whole parts near fractional ones of least load, the lightest; among equals those of few dimensions."""
        tilt = STARTS_TILT * np.random.default_rng(0).random((STARTS, len(self.dims)))
        tilt[0] = 0.0
        weights, log_budget = np.tile(self.log_rows, (STARTS, 1)), np.full(STARTS, np.log(self.workers))
        fractional = np.exp(self.bounds[0].relaxed(weights, log_budget, tilt)[0])
        starts = [start for f in fractional for start in (self._rounded(f), self._rounded(f * 1.03))]
        fitting = [s for s in starts if np.prod([v[c] for v, c in zip(self.values, s, strict=True)]) <= self.workers]
        return sorted(fitting, key=self._load_of)[:DESCENTS]

    def _rounded(self, parts: Float64) -> Int64:
        return np.array([np.searchsorted(v, p, side="right") - 1 for v, p in zip(self.values, parts, strict=True)])

    def _load_of(self, chosen: Int64) -> float:
        parts = (of[:, c] for of, c in zip(self.log_parts, chosen, strict=True))
        return float(np.logaddexp.reduce(self.log_rows + sum(parts)))

    def _descend(self, start: Int64) -> None:
        """Change two dimensions at a time, one of them to any number of parts and the other to fit, while it helps."""
        chosen = start.tolist()
        best = np.inf
        pairs = list(combinations(range(len(self.dims)), 2)) or [(0, 0)]
        improved = True
        while improved:
            improved = False
            for d, e in pairs:
                shares = np.array([v[c] for v, c in zip(self.values, chosen, strict=True)])
                others = [f for f in range(len(self.dims)) if f not in (d, e)]
                room = self.workers // int(shares[others].prod())
                weights = self.log_rows + sum(self.log_parts[f][:, chosen[f]] for f in others)
                c = np.arange(np.searchsorted(self.values[d], room, side="right"))
                weights = weights[:, None] + self.log_parts[d][:, c]
                if d != e:
                    least = np.searchsorted(self.values[e], room // self.values[d][c], side="right") - 1
                    weights = weights + self.log_parts[e][:, least]
                loads = np.logaddexp.reduce(weights, axis=0)
                at = int(loads.argmin())
                if loads[at] < best - TIE:
                    best, improved, chosen[d] = float(loads[at]), True, at
                    if d != e:
                        chosen[e] = int(least[at])
        self._offer(np.array([v[c] for v, c in zip(self.values, chosen, strict=True)]))


class _Bounds:
    """Lower bounds of the load for nodes of one level, by vectors of weights that hold for all of them."""

    def __init__(self, search: _Search, level: int) -> None:
        self.search, self.level = search, level
        relations = len(search.log_rows)
        self.alpha = np.empty((0, relations))
        """Weights of the relations."""
        self.price = np.empty(0)
        self.constant = np.empty(0)
        """What the bound owes to the weights and to the dimensions that remain."""
        self.slopes = np.empty((0, len(search.values[level - 1]) if level else 0))
        """How the bound changes with the parts of the dimension chosen last."""
        self.falling, self.rising = self.slopes, self.slopes

    def __len__(self) -> int:
        return len(self.price)

    def learn(self, nodes: _Nodes) -> None:
        """Keep weights that suit these nodes."""
        _, alpha, price = self.relaxed(nodes.weights, np.log(nodes.budget))
        # Any weights hold, but they must be numbers.
        alpha[~np.isfinite(alpha).all(axis=1)] = 1 / alpha.shape[1]
        self._add(alpha, np.where(np.isfinite(price), price, 1.0))

    def apply(self, nodes: _Nodes, known: int) -> _Nodes:
        """The nodes with the largest of their bounds; those by the first `known` weights they have already."""
        self._inherit()
        bounds = nodes.weights @ self.alpha[known:].T + self.constant[known:]
        bounds -= np.log(nodes.budget)[:, None] * self.price[known:]
        at = bounds.argmax(axis=1)
        largest = bounds[np.arange(len(nodes)), at]
        # The price is that of the bound in force.
        price = np.where(largest > nodes.bound, self.price[known:][at], nodes.price)
        return _Nodes(nodes.level, nodes.shares, nodes.budget, nodes.weights, np.maximum(nodes.bound, largest), price)

    def within(self, parents: _Nodes, limit: float) -> tuple[Int64, Int64]:
        """Indices from the first to the last number of parts whose bound is within the limit."""
        self._inherit()
        bounds = parents.weights @ self.alpha.T + self.constant - np.log(parents.budget)[:, None] * self.price
        slack = limit + 1e-12 - bounds
        last = np.searchsorted(self.search.values[self.level - 1], parents.budget, side="right") - 1
        first, stop = np.zeros(len(parents), dtype=np.int64), last + 1
        # Each end by the weights that say most about the fewest parts, or about the most.
        by_first = (slack - self.slopes[:, 0]).argmin(axis=1)
        by_last = (slack - self.slopes[:, last].T).argmin(axis=1)
        for w in np.unique(by_first).tolist():
            of = np.flatnonzero(by_first == w)
            first[of] = np.searchsorted(-self.falling[w], -slack[of, w])
        for w in np.unique(by_last).tolist():
            of = np.flatnonzero(by_last == w)
            stop[of] = np.minimum(stop[of], np.searchsorted(self.rising[w], slack[of, w], side="right"))
        return first, np.maximum(first, stop)

    def _inherit(self) -> None:
        if not len(self):
            above = self.search.bounds[self.level - 1]
            latest = slice(-2 * SAMPLE, None)
            self._add(above.alpha[latest], above.price[latest])

    def _add(self, alpha: Float64, price: Float64) -> None:
        search, rest = self.search, range(self.level, len(self.search.dims))
        constant = -(alpha * np.log(np.maximum(alpha, 1e-300))).sum(axis=1)
        if not rest:
            price = np.zeros(len(alpha))
        elif search.even:
            price = (alpha @ search.divides[:, self.level :]).max(axis=1)
        else:
            for d in rest:
                by_parts = alpha @ search.log_parts[d] + price[:, None] * search.log_values[d]
                constant += by_parts.min(axis=1)
        self.alpha = np.vstack([self.alpha, alpha])
        self.price, self.constant = np.append(self.price, price), np.append(self.constant, constant)
        if self.level:
            slopes = alpha @ search.log_parts[self.level - 1] + price[:, None] * search.log_values[self.level - 1]
            falling = np.minimum.accumulate(slopes, axis=1)
            rising = np.minimum.accumulate(slopes[:, ::-1], axis=1)[:, ::-1]
            self.slopes = np.vstack([self.slopes, slopes])
            self.falling, self.rising = np.vstack([self.falling, falling]), np.vstack([self.rising, rising])

    def relaxed(
        self, weights: Float64, log_budget: Float64, tilt: Float64 | float = 0.0
    ) -> tuple[Float64, Float64, Float64]:
        """Fractional parts of least load, as logarithms; each relation's part of that load; the price of the budget.

        A relation that p parts leave s + (1 - s) / p of stands for a table that ends at s. Newton steps on the
        logarithm of the load, which is convex in the logarithms of the parts; barriers keep these above zero.
        """
        divides = self.search.divides[:, self.level :].astype(np.float64)
        floor = self.search.floor[:, self.level :]
        n = divides.shape[1]
        x = np.repeat(np.maximum(log_budget, 1e-6)[:, None] / n, n, axis=1)
        system = np.zeros((len(x), n + 1, n + 1))
        system[:, :n, n] = system[:, n, :n] = 1.0
        right, diagonal = np.zeros((len(x), n + 1, 1)), np.arange(n)
        barrier = 0.1
        while barrier > 1e-13:
            alpha, rate = self._parts_of_load(weights, x, divides, floor)
            slope = np.einsum("mi,mid->md", alpha, rate)
            weighted = alpha[:, :, None] * rate
            system[:, :n, :n] = weighted.transpose(0, 2, 1) @ rate - slope[:, :, None] * slope[:, None, :]
            bend = np.einsum("mid,mid->md", weighted, 1 - rate) if floor.any() else 0.0
            system[:, diagonal, diagonal] += bend + barrier / x**2 + 1e-12
            right[:, :n, 0] = slope - tilt + barrier / x
            step = np.linalg.solve(system, right)[:, :n, 0]
            reach = np.max(-step / x, axis=1, initial=0.0)
            x = x + step * np.minimum(1.0, 0.9 / np.maximum(reach, 1e-9))[:, None]
            barrier *= 0.15
        alpha, rate = self._parts_of_load(weights, x, divides, floor)
        return x, alpha, np.einsum("mi,mid->md", alpha, rate).max(axis=1)

    @staticmethod
    def _parts_of_load(weights: Float64, x: Float64, divides: Float64, floor: Float64) -> tuple[Float64, Float64]:
        """Each relation's part of the load, and the rate at which each dimension lessens it."""
        shrinking = (1 - floor) * np.exp(-x)[:, None, :]
        left = floor + shrinking
        logs = weights + (np.log(left) * divides).sum(axis=2)
        alpha = np.exp(logs - logs.max(axis=1, keepdims=True))
        return alpha / alpha.sum(axis=1, keepdims=True), shrinking / left * divides


def _parts(sharing: Sharing, relation: int, dim: int, workers: int) -> Float64:
    """The heaviest part of a relation at index p for p parts of a dimension."""
    if dim not in sharing.dims[relation]:
        return np.ones(workers + 1)
    if (relation, dim) in sharing.heaviest:
        return np.asarray(sharing.heaviest[relation, dim], dtype=np.float64)[: workers + 1]
    return 1 / np.maximum(np.arange(workers + 1), 1)


def _worthwhile(sharing: Sharing, relations: list[int], workers: int) -> list[Int64]:
    """For each dimension the numbers of parts that no other choice makes needless."""
    divided = [frozenset(i for i in relations if d in sharing.dims[i]) for d in range(sharing.dimensions)]
    even = [all((i, d) not in sharing.heaviest for i in divided[d]) for d in range(sharing.dimensions)]
    values = []
    for d, own in enumerate(divided):
        # Parts of d do better as parts of e. Where they would do as well, only an earlier d gives them away.
        needless = any(
            even[e] and (own < other or (own == other and d < e)) for e, other in enumerate(divided) if e != d
        )
        if needless or not own:
            values.append(np.ones(1, dtype=np.int64))
        elif any((i, d) not in sharing.heaviest for i in own):
            values.append(np.arange(1, workers + 1))
        else:
            values.append(_lightening(np.array([_parts(sharing, i, d, workers)[1:] for i in sorted(own)])))
    return values


def _lightening(parts: Float64) -> Int64:
    """Numbers of parts that leave some relation lighter than a smaller number does, the one best for all together."""
    total = np.log(parts).sum(axis=0)
    index = np.arange(len(total))
    record = total < np.minimum.accumulate(np.append(np.inf, total[:-1]))
    before = np.append(0, np.maximum.accumulate(np.where(record, index, 0))[:-1])
    lighter = np.flatnonzero((parts < parts[:, before]).any(axis=0))
    return np.append(0, lighter) + 1


def _lexicographically_before(vectors: Int64, than: Int64) -> Bool:
    differs = vectors != than
    at = differs.argmax(axis=1)
    before: Bool = vectors[np.arange(len(vectors)), at] < than[at]
    return before
