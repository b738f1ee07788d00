"""FastJoin: hashing that watches its loads, and moves keys from the heaviest unit to the lightest.

    for each input, on its own:   loads = rows held * rows probing; LI = heaviest / lightest
        while LI > goal:          i, j = heaviest, lightest
            items of i that fit   -> j                             slots and keys, by GreedyFit or SAFit
            none fits             -> a key is cut: some of its parts -> j, which its rows then probe as well;
                                     where j is too full for that, j's other items -> the lightest units first

Every unit holds rows of every input: it is an instance of each side of the join-biclique. So the first table is plain
hashing, and with no skew it stays that; a biclique of separate units would do twice the comparisons of hashing.
Invariant: each move lowers the load of the heaviest unit and lifts no unit to where that was.
Cost: an adaptation is O(moves * (keys reported + slots a unit)); no epoch without one costs more than O(units).
Loads are planned for as they will be when the new table is in force, a few epochs on.
Units lose rows only as far as their bytes can be moved at once, the heaviest first: a table in force now beats a better
one that takes many epochs to move to, and the next epoch goes on from there.
Source: FastJoin, sections III and IV; cutting keys, slots and looking ahead are ours.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evenkeel.streaming import monitor
from evenkeel.streaming.monitor import SideLoads
from evenkeel.streaming.strategies.base import Loads, RoutingTable, Step, Watch
from evenkeel.streaming.strategies.key_selection import Annealing, Pair, greedy_fit, sa_fit
from evenkeel.streaming.strategies.keyed import KeyedTable
from evenkeel.types import Float64, Int64

DEFAULTS = {
    "theta": 2.2,
    "goal": 1.25,
    "gap": 1e-4,
    "moves": 8.0,
    "patience": 2.0,
    "payback": 64.0,
    "ahead": 3.0,
    "keys": 24.0,
    "sa": 0.0,
    "T": 1.0,
    "L": 50.0,
    "a": 0.8,
    "Tmin": 0.01,
}
"""Threshold of LI; LI to stop at; theta_gap as a part of the heaviest load; moves a unit at the most; decisions in a
row; epochs a move has to pay in; epochs to look ahead; keys a unit reports; 1 for SAFit, and its four parameters."""
ROOM = 0.9
"""How heavy a unit may become by what is moved out of another's way, in parts of the heaviest load."""
TARGETS = 8
"""How many units are tried to relieve one by."""
EVICTIONS = 3
"""How many of them are cleared for a share of a key that fits nowhere."""
MOVES = 400
"""Reliefs in one adaptation at the most, however many units there are; the next goes on from there."""
CLEARINGS = 32
"""And how often that is tried in one adaptation; it is the one step that costs more with more units."""
CUTS = 4
"""How many of a unit's heaviest keys are tried to be cut."""
STUCK = 16
"""How many units in a row that nothing relieves end the search."""
REST = 4.0
"""Doublings of the epochs to wait when moves do not help, at the most."""
LAG = 1
"""Epochs until a table that is asked for is in force: an imbalance is judged by what it will be then."""
SOON = 0.7
"""And acted on when it is this near to the threshold."""


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
    sources: set[int] = field(default_factory=set)
    """Units that lose rows."""

    @property
    def loads(self) -> Float64:
        return monitor.load(self.stored, self.probing)

    def copied(self) -> Side:
        return replace(
            self, stored=self.stored.copy(), probing=self.probing.copy(), slots=list(self.slots), keys=dict(self.keys),
            held=[dict(h) for h in self.held], of_unit=[list(u) for u in self.of_unit], moved=self.moved.copy(),
            sources=set(self.sources),
        )  # fmt: skip

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
        for at in np.argsort(-rows, kind="stable").tolist():
            if (self.stored[j] + share + 1) * (self.probing[j] + probing + 1) < limit:
                return True
            room = self.loads
            room[[i, j]] = np.inf
            to = int(np.argmin(room))
            s, p = self._weight(names[at], j)
            if names[at][0] and names[at][1] in self.held[to]:
                p = 0.0
            if (self.stored[to] + s + 1) * (self.probing[to] + p + 1) < limit:
                self.move(names[at], j, to)
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

    def relieve(self, i: int, goal: float, gap: float, annealing: Annealing | None, evictions: int) -> Side | None:
        """This side, or a copy of it where a unit was cleared first, with i lighter; None if nothing helps."""
        if not self.may_lose(i):
            return None
        names, stored, probing = self.items(i)
        loads = self.loads
        targets = [j for j in self.targets(i) if loads[i] > goal * loads[j]]
        for j in targets:
            pair = self.pair(i, j)
            chosen = (
                greedy_fit(pair, stored, probing, gap * float(self.loads[i]))
                if annealing is None
                else sa_fit(pair, stored, probing, annealing)
            )
            for item in chosen.tolist():
                self.move(names[item], i, j)
            if len(chosen) or self.cut(i, j):
                return self
        for j in targets[:evictions]:
            if not self.may_lose(i, j):
                continue
            other = self.copied()
            if other.evict(i, j) and other.cut(i, j):
                return other
        return None


def balance(side: Side, goal: float, most: int, gap: float, annealing: Annealing | None) -> Side:
    """Move items until LI is at most `goal`, nothing helps any more, or `most` moves are made."""
    stuck: set[int] = set()
    clearings = CLEARINGS
    for _ in range(most):
        loads = side.loads
        ranked = loads.copy()
        ranked[list(stuck)] = -1.0
        i = int(np.argmax(ranked))
        if ranked[i] <= goal * loads.min():
            break
        relieved = side.relieve(i, goal, gap, annealing, EVICTIONS if clearings else 0)
        clearings -= bool(clearings and relieved is not side)
        if relieved is None:
            stuck.add(i)
            if len(stuck) > STUCK:
                break
        else:
            side = relieved
            stuck.clear()
    return side


class FastJoin:
    name = "fastjoin"
    summary = "hashing that moves keys off the heaviest unit, and cuts those too heavy to move"
    needs_equality = True
    together = False
    copies = False
    needs_rows = True
    needs_band = False
    options = tuple(DEFAULTS)

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, float]) -> RoutingTable:
        settings = {k: float(v) for k, v in options.items() if DEFAULTS.get(k) != v}
        return KeyedTable.start(inputs, units, self.name, settings)

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return KeyedTable.from_json(doc)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return Watch(keys=int(_settings(table)["keys"]))

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, KeyedTable)
        s = _settings(table)
        patience = int(s["patience"])
        fresh, sorted_arrival = monitor.temporal(memory, loads, patience)
        kept: dict[str, Any] = {"rate": {}, "over": {}, "fresh": fresh}
        slots, keys, reasons = dict(table.slots), dict(table.keys), []
        sides, limit = {}, SOON * s["theta"]
        for input in table.slots:
            now = SideLoads.of(loads, input, table.units)
            rate = monitor.rates(memory.get("rate", {}).get(input), now.probing)
            kept["rate"][input] = [round(float(r), 1) for r in rate]
            li = max(now.li, monitor.imbalance(monitor.load(now.stored + LAG * now.growth, rate)))
            kept["over"][input] = int(memory.get("over", {}).get(input, 0)) + 1 if li > limit else 0
            sides[input] = now, rate, li
        over = kept["over"]
        act = any(
            monitor.confirmed(li, limit, monitor.noise(now.probing), over[i], patience)
            for i, (now, _, li) in sides.items()
        )
        worst = max(float(now.loads.max() / now.loads.mean()) for now, _, _ in sides.values())
        kept["rest"], wait = _rest(memory.get("rest"), worst, s["theta"])
        act = act and not wait
        sizes = [n for u in loads.units for n in u.bytes.values()]
        budget = max(loads.budget, 2 * max(sizes, default=0))  # of large units two at a time, whatever that takes
        for input, (now, rate, li) in sorted(sides.items(), key=lambda side: -side[1][2]):
            if sorted_arrival or not act or not over[input]:
                continue
            side = _side(table, loads, input, now, rate, s["ahead"], budget)
            before = side.loads
            annealing = Annealing(s["T"], int(s["L"]), s["a"], s["Tmin"], seed=loads.epoch) if s["sa"] else None
            side = balance(side, s["goal"], min(MOVES, int(s["moves"] * table.units)), s["gap"], annealing)
            received = now.growth + now.probing
            even = li > s["theta"] >= monitor.imbalance(side.loads)
            least = 0.0 if even else monitor.least_gain(rate[int(np.argmax(before))])
            if not monitor.pays(before, side.loads, received, side.moved, s["payback"], least):
                continue
            slots[input] = tuple(side.slots)
            keys[input] = {k: tuple(u.tolist()) for k, u in side.keys.items()}
            budget -= side.spent
            after = monitor.imbalance(side.loads)
            reasons.append(f"{input}: LI {li:.1f} to {after:.1f}")
        new = table.changed(slots, keys, table.units)
        if reasons and (new.slots != table.slots or new.keys != table.keys):
            return Step(kept | {"over": {}, "rest": {**kept["rest"], "asked": worst}}, new, "; ".join(reasons))
        return Step(kept, reason="keys come in order: moving them would chase the past" if sorted_arrival else "")


def _settings(table: RoutingTable) -> dict[str, float]:
    assert isinstance(table, KeyedTable)
    return DEFAULTS | dict(table.settings)


def _rest(before: Mapping[str, float] | None, worst: float, theta: float) -> tuple[dict[str, float], bool]:
    """What to remember of moves that did not lower the heaviest over the mean load, and whether to wait.

    From the second in a row on, each doubles the epochs until the next, unless loads have changed since: what no table
    can balance is not chased.
    """
    asked, times, left = ((before or {}).get(k, 0.0) for k in ("asked", "times", "left"))
    same = asked * (1 - monitor.GAIN) < worst < asked / (1 - monitor.GAIN)
    if same and left:
        return {"asked": asked, "times": times, "left": left - 1}, left > 1
    if same and worst > theta:
        times = min(times + 1, REST)
        left = 2.0 ** (times - 1) if times > 1 else 0.0
        return {"asked": asked, "times": times, "left": left}, left > 0
    return {"asked": 0.0, "times": 0.0, "left": 0.0}, False


def _side(
    table: KeyedTable, loads: Loads, input: str, now: SideLoads, rate: Float64, ahead: float, budget: float
) -> Side:
    """The side as it will be `ahead` epochs on, cut into items: reported keys that stand out, and slots."""
    stored = now.stored + ahead * now.growth
    size = np.zeros(table.units)
    for u in loads.units:
        size[u.unit] = u.bytes.get(input, 0)
    side = Side(
        stored, rate.copy(), list(table.slots[input]), {k: np.array(u) for k, u in table.keys[input].items()},
        table.parts, np.zeros(len(table.slots[input])), np.zeros(len(table.slots[input])),
        [{} for _ in range(table.units)], [[] for _ in range(table.units)], np.zeros(table.units), size, budget,
    )  # fmt: skip
    for slot, unit in enumerate(side.slots):
        side.of_unit[unit].append(slot)
    for u in loads.units:
        scale = rate[u.unit] / max(1.0, now.probing[u.unit])
        theirs: dict[int, float] = {}
        for other, reported in u.keys.items():
            if other != input:
                for k in reported:
                    theirs[k.key] = theirs.get(k.key, 0.0) + k.probing * scale
        mine = {k.key: k.stored + ahead * k.stored_now for k in u.keys.get(input, ())}
        known = {k: (mine.get(k, 0.0), theirs.get(k, 0.0)) for k in {*mine, *theirs}}
        here = {k: v for k, v in known.items() if u.unit in side.units_of(k)}
        slots = side.of_unit[u.unit]
        count = max(1, len(slots))
        rest_s = max(0.0, stored[u.unit] - sum(s for s, _ in here.values()))
        rest_p = max(0.0, float(rate[u.unit]) - sum(p for _, p in here.values()))
        side.slot_stored[slots] += rest_s / count
        side.slot_probing[slots] += rest_p / count
        for key, (s, p) in here.items():
            slot = key % len(side.slots)
            if key not in side.keys and s < rest_s / count and p < rest_p / count:
                side.slot_stored[slot] += s
                side.slot_probing[slot] += p
            elif s or p:
                side.held[u.unit][key] = s, p
    return side
