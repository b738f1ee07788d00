"""One input's rows, unit by unit, and the moves that even them out: the inner loop of FastJoin.

    balance    the heaviest unit is relieved until LI is at the goal, nothing helps, or enough was moved
    relieve    items that fit -> a light unit; none fits -> a key is cut, or a unit is cleared for it first
    absorb     a key that has just become hot -> all units that have room for its probes
    quieten    units that hardly any row probes -> a share of a key that some do

Invariant: relieving lowers the load of the heaviest unit and lifts no unit to where that was; absorbing lifts none far
above the heaviest without that key; quietening may lift any, so who calls it looks at the loads afterwards; no more
bytes of units lose rows than the budget has.
Source: FastJoin, section III-C; cutting and absorbing keys, clearing units and the budget are ours.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from evenkeel.streaming import monitor
from evenkeel.streaming.strategies.key_selection import Annealing, Pair, greedy_fit, sa_fit
from evenkeel.types import Float64, Int64

ROOM = 0.9
"""How heavy a unit may become by what is moved out of another's way, in parts of the heaviest load."""
QUIET = 100.0
"""So many, or a tenth of the mean where that is less."""
QUIETED = 3.0
"""How many times that units are given that have less."""
CHANCE = 1.5
"""Unless chance would still make loads as uneven as this."""
TARGETS = 8
"""How many units are tried to relieve one by."""
EVICTIONS = 3
"""How many of them are cleared for a share of a key that fits nowhere."""
CLEARED = 0.5
"""How light a unit is made for a share of a key: with more room than for one part, or nothing is gained by sharing."""
CLEARINGS = 160
"""How often that is tried in one search; it is the one step that costs more with more units."""
ABSORBED = 1.6
"""How heavy units may become that a key is laid over at once, in parts of the heaviest load without it."""
CUTS = 4
"""How many of a unit's heaviest keys are tried to be cut."""
STUCK = 16
"""How many units in a row that nothing relieves end the search."""


@dataclass
class Side:
    """One input's rows, as moves change them."""

    stored: Float64
    probing: Float64
    slots: list[int]
    keys: dict[int, Int64]
    """By key, its one unit or that of each part."""
    parts: int
    slot_stored: Float64
    slot_probing: Float64
    held: list[dict[int, tuple[float, float]]]
    """By unit, the keys that are items of their own: (rows held there, rows probing there)."""
    of_unit: list[list[int]]
    moved: Float64
    size: Float64
    """Bytes of each unit."""
    budget: float = float("inf")
    """Bytes of units that lose rows, at the most."""
    clearings: int = CLEARINGS
    """How often a unit may still be tried to be cleared."""
    sources: set[int] = field(default_factory=set)
    """Units that lose rows."""

    @property
    def loads(self) -> Float64:
        return monitor.load(self.stored, self.probing)

    def copied(self) -> Side:
        """What a unit has is shared with the copy until either changes it, with `_own`."""
        return replace(
            self, stored=self.stored.copy(), probing=self.probing.copy(), slots=list(self.slots), keys=dict(self.keys),
            held=list(self.held), of_unit=list(self.of_unit), moved=self.moved.copy(), sources=set(self.sources),
        )  # fmt: skip

    def _own(self, *units: int) -> None:
        for u in units:
            self.held[u], self.of_unit[u] = dict(self.held[u]), list(self.of_unit[u])

    @property
    def quiet(self) -> float:
        """Probes that a unit has to keep: of fewer, chance makes an uneven load, however well it was planned."""
        return min(QUIET, float(self.probing.mean()) / 10)

    @property
    def spent(self) -> float:
        return float(self.size[list(self.sources)].sum())

    def may_lose(self, *units: int) -> bool:
        """Whether these units can lose rows, too."""
        more = {*units} - self.sources
        return self.spent + float(self.size[list(more)].sum()) <= self.budget

    def pair(self, i: int, j: int) -> Pair:
        return Pair(self.stored[i] + 1, self.probing[i] + 1, self.stored[j] + 1, self.probing[j] + 1)

    def items(self, i: int) -> tuple[list[tuple[bool, int]], Float64, Float64]:
        """Slots and keys of a unit: (is it a key, which), rows held, rows probing."""
        names = [(False, s) for s in self.of_unit[i]] + [(True, k) for k in self.held[i]]
        mine = list(self.held[i].values())
        stored = np.concatenate([self.slot_stored[self.of_unit[i]], [s for s, _ in mine]])
        probing = np.concatenate([self.slot_probing[self.of_unit[i]], [p for _, p in mine]])
        return names, stored, probing

    def move(self, item: tuple[bool, int], i: int, j: int) -> None:
        is_key, name = item
        if not is_key:
            self._shift(i, j, float(self.slot_stored[name]), float(self.slot_probing[name]))
            self._own(i, j)
            self.of_unit[i].remove(name)
            self.of_unit[j].append(name)
            for key in self.held[i]:
                if key not in self.keys and key % len(self.slots) == name:
                    self.keys[key] = np.array([i])
            self.slots[name] = j
            return
        self.give(name, i, j, self.share(name, i))

    def units_of(self, key: int) -> Int64:
        units = self.keys.get(key)
        return np.array([self.slots[key % len(self.slots)]]) if units is None else units

    def share(self, key: int, unit: int) -> int:
        """How many parts of a key a unit that holds it has."""
        units = self.units_of(key)
        return self.parts if len(units) == 1 else int(np.count_nonzero(units == unit))

    def give(self, key: int, i: int, j: int, count: int) -> None:
        """So many of the parts of a key that i holds go to j."""
        mine = self.share(key, i)
        self._own(i, j)
        stored, probing = self.held[i].pop(key)
        rows = stored * count / mine
        self._shift(i, j, rows, 0.0)
        if count < mine:
            self.held[i][key] = stored - rows, probing
        else:
            self.probing[i] -= probing
        if key not in self.held[j]:
            self.probing[j] += probing
        self.held[j][key] = self.held[j].get(key, (0.0, 0.0))[0] + rows, probing
        old = self.units_of(key)
        units = np.full(self.parts, old[0]) if len(old) == 1 else old.copy()
        units[np.flatnonzero(units == i)[:count]] = j
        self.keys[key] = units[:1] if (units == units[0]).all() else units

    def _shift(self, i: int, j: int, stored: float, probing: float) -> None:
        self.stored[i] -= stored
        self.stored[j] += stored
        self.probing[i] -= probing
        self.probing[j] += probing
        self.moved[i] += stored
        self.moved[j] += stored
        if stored:
            self.sources.add(i)

    def cut(self, i: int, j: int) -> bool:
        """Share a key of i with j so that their loads meet; whether there was one to share."""
        pair, limit = self.pair(i, j), float(self.loads[i])
        for key, (stored, probing) in heapq.nlargest(CUTS, self.held[i].items(), key=lambda k: k[1][0]):
            joins = key not in self.held[j]
            theirs = pair.probing_j + (probing if joins else 0.0)
            wanted = (pair.stored_i * pair.probing_i - pair.stored_j * theirs) / (pair.probing_i + theirs)
            mine = self.share(key, i)
            count = min(mine - 1, int(wanted / max(stored / mine, 1e-9)))
            rows = stored * count / mine
            if count >= 1 and (pair.stored_j + rows) * theirs < limit and rows > 0:
                self.give(key, i, j, count)
                return True
        return False

    def quieten(self) -> bool:
        """Share a key that just enough rows probe with the units that too few do: chance no longer makes their load."""
        few, enough = np.flatnonzero(self.probing < self.quiet), QUIETED * self.quiet
        if not len(few) or monitor.noise(np.array([enough])) > CHANCE:
            return False
        wanted = enough - float(self.probing[few].min())
        keys = [(p, k, i) for i, held in enumerate(self.held) for k, (_, p) in held.items() if p >= wanted]
        whole = [(p, k, i) for p, k, i in keys if len(self.units_of(k)) == 1 and self.may_lose(i)]
        if not whole:
            return False
        _, key, i = min(whole)
        for n, j in enumerate(few.tolist()):
            self.give(key, i, j, self.share(key, i) // (len(few) + 1 - n))
        return True

    def absorb(self) -> bool:
        """Lay a key over units that have room for all its probes, such as those of a key that was hot before it.

        Done where it evens the loads out and lifts none far above the heaviest without that key. Its parts are dealt
        out evenly: a key that has just become hot has few rows to move.
        """
        probing: dict[int, float] = {}
        for held in self.held:
            for key, (_, n) in held.items():
                probing[key] = max(n, probing.get(key, 0.0))
        for key in heapq.nlargest(CUTS, probing, key=lambda k: probing[k]):
            holders = [u for u in range(len(self.held)) if key in self.held[u]]
            stored, probes = self.stored.copy(), self.probing.copy()
            for u in holders:
                stored[u] -= self.held[u][key][0]
                probes[u] -= self.held[u][key][1]
            rows = sum(self.held[u][key][0] for u in holders)
            chosen = _room(stored, probes, rows, probing[key], monitor.imbalance(self.loads) / 2)
            if chosen is None:
                continue
            old = self.units_of(key)
            dealt = np.resize(chosen, self.parts)
            lose = {int(u) for u in np.resize(old, self.parts)[np.resize(old, self.parts) != dealt]}
            if not self.may_lose(*lose):
                continue
            self._own(*{*holders, *chosen.tolist()})
            for u in holders:
                self.moved[u] += self.held[u].pop(key)[0]
            self.stored, self.probing = stored, probes
            for u, n in zip(*np.unique(dealt, return_counts=True), strict=True):
                share = float(rows * n / self.parts)
                self.held[u][key] = share, probing[key]
                self.stored[u] += share
                self.probing[u] += probing[key]
                self.moved[u] += share
            self.sources |= lose
            self.keys[key] = dealt[:1] if len(chosen) == 1 else dealt
            return True
        return False

    def evict(self, i: int, j: int) -> bool:
        """Make room in j for a share of i's heaviest key: j's own items go to other units, none made as heavy as i."""
        if not self.held[i]:
            return False
        limit = ROOM * float(self.loads[i])
        key = max(self.held[i], key=lambda k: self.held[i][k][0])
        stored, probing = self.held[i][key]
        share = stored / max(1, self.share(key, i))
        if key in self.held[j]:
            return False
        names, rows, _ = self.items(j)
        room = self.loads
        room[[i, j]] = np.inf
        for at in np.argsort(-rows, kind="stable").tolist():
            if (self.stored[j] + share + 1) * (self.probing[j] + probing + 1) < CLEARED * limit:
                return True
            if self.probing[j] + probing < self.quiet:
                break
            to = int(room.argmin())
            s, p = self._weight(names[at], j)
            if names[at][0] and names[at][1] in self.held[to]:
                p = 0.0
            if (self.stored[to] + s + 1) * (self.probing[to] + p + 1) < limit:
                self.move(names[at], j, to)
                room[to] = (self.stored[to] + 1) * (self.probing[to] + 1)
        return bool((self.stored[j] + share + 1) * (self.probing[j] + probing + 1) < limit)

    def _weight(self, item: tuple[bool, int], unit: int) -> tuple[float, float]:
        is_key, name = item
        return self.held[unit][name] if is_key else (float(self.slot_stored[name]), float(self.slot_probing[name]))

    def targets(self, i: int) -> list[int]:
        """Units to relieve i by: the lightest, and the lightest of those that share its heaviest key."""
        loads = self.loads
        order = np.argsort(loads, kind="stable").tolist()
        out = order[:TARGETS]
        if self.held[i]:
            key = max(self.held[i], key=lambda k: self.held[i][k][0])
            out += [u for u in order if key in self.held[u] and u not in out][:TARGETS]
        return [j for j in out if j != i]

    def relieve(self, i: int, goal: float, gap: float, annealing: Annealing | None) -> Side | None:
        """This side, or a copy of it where a unit was cleared first, with i lighter; None if nothing helps."""
        if not self.may_lose(i):
            return None
        names, stored, probing = self.items(i)
        loads, evictions = self.loads, EVICTIONS
        targets = [j for j in self.targets(i) if loads[i] > goal * loads[j]]
        for j in targets:
            pair = self.pair(i, j)
            chosen = np.empty(0, dtype=np.int64)
            if self.probing[i] >= 2 * self.quiet:
                chosen = (
                    greedy_fit(pair, stored, probing, gap * float(self.loads[i]))
                    if annealing is None
                    else sa_fit(pair, stored, probing, annealing)
                )
                chosen = chosen[self.probing[i] - np.cumsum(probing[chosen]) >= self.quiet]
            for item in chosen.tolist():
                self.move(names[item], i, j)
            if len(chosen):
                return self
            room = self.cleared(i, j) if evictions and self.clearings else None
            evictions -= bool(evictions)
            shared = self.copied() if room is not None else self
            if shared.cut(i, j):
                return shared if room is None or shared.spread <= room.spread else room
            if room is not None:
                return room
        return None

    def cleared(self, i: int, j: int) -> Side | None:
        """A copy in which j was cleared for a share of i's heaviest key, if it can be."""
        if not self.may_lose(i, j):
            return None
        self.clearings -= 1
        other = self.copied()
        return other if other.evict(i, j) and other.cut(i, j) else None

    @property
    def spread(self) -> float:
        """The less, the more even and the less work: heavy units weigh most."""
        return float(np.square(self.loads).sum())


def _room(stored: Float64, probing: Float64, rows: float, probes: float, below: float) -> Int64 | None:
    """The units to lay a key over so that LI is least and below what it says; None if none are light enough."""
    without = monitor.load(stored, probing)
    order = np.argsort(monitor.load(stored, probing + probes), kind="stable")
    best, most = None, ABSORBED * float(without.max())
    for count in range(1, len(order)):
        chosen = order[:count]
        after = without.copy()
        after[chosen] = monitor.load(stored[chosen] + rows / count, probing[chosen] + probes)
        li = monitor.imbalance(after)
        if after.max() <= most and li < below:
            best, below = chosen, li
    return best


def balance(side: Side, goal: float, most: int, gap: float, annealing: Annealing | None) -> Side:
    """Move items until LI is at most `goal`, nothing helps any more, or `most` moves are made."""
    stuck: set[int] = set()
    for _ in range(most):
        loads = side.loads
        ranked = loads.copy()
        ranked[list(stuck)] = -1.0
        i = int(np.argmax(ranked))
        if ranked[i] <= goal * loads.min():
            break
        relieved = side.relieve(i, goal, gap, annealing)
        if relieved is None:
            stuck.add(i)
            if len(stuck) > STUCK:
                break
        else:
            side = relieved
            stuck.clear()
    return side
