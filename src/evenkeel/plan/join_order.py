"""The order in which the relations of a cell, or of a pipeline, are joined: left-deep, by estimated size.

    from each of the largest relations as the first: take next the relation that keeps the result smallest
    of these orders the one with least work: results between joins are probed, all relations but the first are built

The first relation is streamed through hash tables of the others, so no result between two joins is ever stored.
Cost: n^2 estimates for n relations and each first one, each a lookup for every relation before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenkeel.conditions import Clause, Query
from evenkeel.stats import KeyGroups, matches

FIRSTS = 12
"""Relations that are tried as the first one, those of which most rows arrive."""
BUILD = 0.6
"""A row that goes into a hash table, in units of a look-up that misses the processor's caches (docs/adr/0014)."""
AT_HAND = 0.1
"""A look-up that the caches answer."""
CACHED = 100_000.0
"""Rows of a hash table from which every look-up misses the caches."""
PASSES = 1 / 3
"""The part of combinations that an inequality is taken to let through."""


@dataclass(frozen=True)
class JoinOrder:
    relations: tuple[int, ...]
    rows: tuple[float, ...]
    """The estimated rows after each relation has joined; the first is that of one relation alone."""

    @property
    def intermediate(self) -> float:
        """Rows of all results between two joins."""
        return sum(self.rows[1:-1])

    @property
    def result(self) -> float:
        return self.rows[-1]


class Estimator:
    def __init__(self, query: Query, groups: Sequence[KeyGroups]) -> None:
        self.query = query
        self.groups = groups
        self._of = [query.of(i) for i in query.relations]
        self._selectivity: dict[tuple[int, int, int], float] = {}

    def selectivity(self, one: int, two: int, attribute: int) -> float:
        """The part of all pairs of two relations that agree in an attribute."""
        key = (min(one, two), max(one, two), attribute)
        if key not in self._selectivity:
            pairs = self.groups[one].total * self.groups[two].total
            found = matches(self.groups[key[0]], self.groups[key[1]], attribute) if pairs else 0.0
            self._selectivity[key] = found / pairs if pairs else 0.0
        return self._selectivity[key]

    def extended(self, rows: float, joined: Sequence[int], relation: int) -> float:
        """The rows of a result once one more relation has joined it."""
        rows *= self.groups[relation].total
        alone = 1.0
        for a in self._of[relation]:
            partners = [i for i in joined if i in self.query.attributes[a].columns]
            if partners:
                alone *= min(self.selectivity(i, relation, a) for i in partners)
        if self.groups[relation].together:
            alone = max(alone, *(self._together(i, relation) for i in joined))
        rows *= alone
        newly = newly_checkable(self.query.clauses, joined, relation)
        return float(rows * PASSES ** len(newly))

    def _together(self, one: int, two: int) -> float:
        """The part of all pairs that agree in all of several attributes, which are rarely independent."""
        shared = tuple(a for a in self._of[two] if a in self._of[one])
        values = [self.groups[i].together.get(shared, 0.0) for i in (one, two)]
        if len(shared) < 2 or not min(values):
            return 0.0
        return min(1.0 / max(values), *(self.selectivity(one, two, a) for a in shared))

    def order(self, arriving: Sequence[float], regions: int = 1) -> JoinOrder:
        """The order of least work when so many rows of each relation arrive in all regions, copies included."""
        firsts = sorted(self.query.relations, key=lambda i: -arriving[i])[:FIRSTS]
        orders = [self._from(first) for first in firsts]
        every = sum(arriving)

        def work(order: JoinOrder) -> float:
            first = order.relations[0]
            done = BUILD * (every - arriving[first])
            for k, relation in enumerate(order.relations[1:], start=1):
                # A key that the first relation holds is looked up once in earnest, then while it is still at hand.
                held = not self._needs(order.relations[1:k], relation, first)
                earnest = arriving[first] if held else max(arriving[first], order.rows[k - 1])
                done += AT_HAND * order.rows[k - 1] + earnest * min(1.0, arriving[relation] / regions / CACHED)
            return done

        return min(orders, key=work)

    def _from(self, first: int) -> JoinOrder:
        joined, rows = [first], [self.groups[first].total]
        while len(joined) < len(self.groups):
            rest = [i for i in self.query.relations if i not in joined]
            linked = [i for i in rest if self._linked(joined, i)] or rest
            sizes = {i: self.extended(rows[-1], joined, i) for i in linked}
            best = min(linked, key=lambda i: (sizes[i], self.groups[i].total))
            joined.append(best)
            rows.append(sizes[best])
        return JoinOrder(tuple(joined), tuple(rows))

    def _needs(self, joined: Sequence[int], relation: int, first: int) -> bool:
        """Whether the relation is joined by an attribute that the first one does not have, but another one."""
        mine = (self.query.attributes[a].columns for a in self._of[relation])
        return any(first not in columns and any(i in columns for i in joined) for columns in mine)

    def _linked(self, joined: Sequence[int], relation: int) -> bool:
        """Whether an equality connects the relation with those that have joined."""
        mine = self._of[relation]
        return any(i in self.query.attributes[a].columns for a in mine for i in joined)


def newly_checkable(clauses: Iterable[Clause], joined: Sequence[int], relation: int) -> list[Clause]:
    """Clauses that can be checked once `relation` has joined, and could not before."""
    have = {*joined, relation}
    return [c for c in clauses if relation in c.relations and c.relations <= have]
