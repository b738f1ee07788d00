"""The order in which the relations of a cell, or of a pipeline, are joined: left-deep, by estimated size.

    from every relation as the first: take next the relation that keeps the result smallest
    of these orders the one whose results together are smallest; of equal ones the one that starts with most rows

The first relation is streamed through hash tables of the others, so no result between two joins is ever stored.
Cost: n^3 estimates for n relations, each a lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from evenkeel.conditions import Clause, Query
from evenkeel.stats import KeyGroups, matches

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
        for a in self.query.of(relation):
            partners = [i for i in joined if i in self.query.attributes[a].columns]
            if partners:
                rows *= min(self.selectivity(i, relation, a) for i in partners)
        newly = newly_checkable(self.query.clauses, joined, relation)
        return float(rows * PASSES ** len(newly))

    @cached_property
    def order(self) -> JoinOrder:
        orders = [self._from(first) for first in self.query.relations]
        return min(orders, key=lambda o: (o.intermediate, -o.rows[0]))

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

    def _linked(self, joined: Sequence[int], relation: int) -> bool:
        """Whether an equality connects the relation with those that have joined."""
        mine = self.query.of(relation)
        return any(i in self.query.attributes[a].columns for a in mine for i in joined)


def newly_checkable(clauses: Iterable[Clause], joined: Sequence[int], relation: int) -> list[Clause]:
    """Clauses that can be checked once `relation` has joined, and could not before."""
    have = {*joined, relation}
    return [c for c in clauses if relation in c.relations and c.relations <= have]
