"""FastJoin: hashing that watches its loads, and moves keys from the heaviest unit to the lightest.

    for each input, on its own:   loads = rows held * rows probing; LI = heaviest / lightest
        while LI > goal:          i, j = heaviest, lightest
            items of i that fit   -> j                             slots and keys, by GreedyFit or SAFit
            none fits             -> a key is cut: some of its parts -> j, which its rows then probe as well;
                                     where j is too full for that, j's other items -> the lightest units first
        or, where that is not enough: a key that has just become hot is laid over units that idle, such as those of the
                                  key that was hot before it: next to nothing moves

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

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenkeel.streaming import monitor
from evenkeel.streaming.monitor import SideLoads
from evenkeel.streaming.strategies.base import Loads, RoutingTable, Step, Watch
from evenkeel.streaming.strategies.key_selection import Annealing
from evenkeel.streaming.strategies.keyed import KeyedTable
from evenkeel.streaming.strategies.relief import Side, balance
from evenkeel.types import Float64

DEFAULTS = {
    "theta": 2.2,
    "goal": 1.1,
    "gap": 1e-4,
    "moves": 8.0,
    "patience": 2.0,
    "payback": 64.0,
    "ahead": 2.0,
    "keys": 24.0,
    "sa": 0.0,
    "T": 1.0,
    "L": 50.0,
    "a": 0.8,
    "Tmin": 0.01,
}
"""Threshold of LI; LI to stop at; theta_gap as a part of the heaviest load; moves a unit at the most; decisions in a
row; epochs a move has to pay in; epochs to look ahead; keys a unit reports; 1 for SAFit, and its four parameters."""
MOVES = 400
"""Reliefs in one adaptation at the most, however many units there are; the next goes on from there."""
REST = 4.0
"""Doublings of the epochs to wait when moves do not help, at the most."""
EARLY = 4
"""The last epoch in which moves are taken back when keys turn out to come in order: later it is too much state."""
AGAIN = 1.1
"""How much more uneven loads below the threshold have to be for another search where one found nothing that pays."""
WASTE = 2.0
"""How much heavier the heaviest unit may be for the sake of even loads: those of idle units can be raised by copies."""
LAG = 1
"""Epochs until a table that is asked for is in force: an imbalance is judged by what it will be then."""
SOON = 0.6
"""And acted on when it is this near to the threshold."""
SURE = 4.0
"""Standard deviations, of both factors of a load, that are taken for chance below the threshold."""


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
        sides = {}
        for input in table.slots:
            now = SideLoads.of(loads, input, table.units)
            rate = monitor.rates(memory.get("rate", {}).get(input), now.probing)
            kept["rate"][input] = [round(float(r), 1) for r in rate]
            li = max(now.li, monitor.imbalance(monitor.load(now.stored + LAG * now.growth, rate)))
            kept["over"][input] = int(memory.get("over", {}).get(input, 0)) + 1 if li > _soon(now, s["theta"]) else 0
            sides[input] = now, rate, li
        over = kept["over"]
        act = any(
            monitor.confirmed(li, _soon(now, s["theta"]), monitor.noise(now.probing), over[i], patience)
            for i, (now, _, li) in sides.items()
        )
        worst = max(float(now.loads.max() / now.loads.mean()) for now, _, _ in sides.values())
        kept["rest"], wait = _rest(memory.get("rest"), worst, s["theta"])
        act = act and not wait
        if sorted_arrival:
            return _in_order(table, loads.epoch, kept)
        vain = {i: n for i, n in memory.get("vain", {}).items() if sides[i][2] <= min(s["theta"], AGAIN * n)}
        uneven = sorted((i for i in sides if over[i] and act and i not in vain), key=lambda i: -sides[i][2])
        for input, (before, side) in _relieved(table, loads, {i: sides[i][:2] for i in uneven}, s).items():
            now, rate, li = sides[input]
            after = monitor.imbalance(side.loads)
            least = 0.0 if li > s["theta"] >= after else monitor.least_gain(rate[int(np.argmax(before))])
            if monitor.pays(before, side.loads, now.growth + now.probing, side.moved, s["payback"], least):
                slots[input] = tuple(side.slots)
                keys[input] = {k: tuple(u.tolist()) for k, u in side.keys.items()}
                reasons.append(f"{input}: LI {li:.1f} to {after:.1f}")
            elif li <= s["theta"]:
                vain[input] = li
        kept["vain"] = vain
        new = table.changed(slots, keys, table.units)
        if reasons and (new.slots != table.slots or new.keys != table.keys):
            return Step(kept | {"over": {}, "rest": {**kept["rest"], "asked": worst}}, new, "; ".join(reasons))
        return Step(kept)


def _in_order(table: KeyedTable, epoch: int, kept: Mapping[str, Any]) -> Step:
    """Keys that come in order say nothing about those to come; what was moved before that was known is taken back."""
    if epoch > EARLY or not table.replicates:
        return Step(kept, reason="keys come in order: moving them would chase the past")
    plain = KeyedTable.start(tuple(table.slots), table.units, table.strategy, table.settings)
    return Step(kept, table.changed(plain.slots, plain.keys, table.units), "keys come in order: back to hashing")


def _relieved(
    table: KeyedTable, loads: Loads, uneven: Mapping[str, tuple[SideLoads, Float64]], s: Mapping[str, float]
) -> dict[str, tuple[Float64, Side]]:
    """Loads before, and the sides with all moves that were found within the bytes that can be moved at once."""
    sizes = [n for u in loads.units for n in u.bytes.values()]
    budget = max(loads.budget, 2 * max(sizes, default=0))  # of large units two at a time, whatever that takes
    annealing = Annealing(s["T"], int(s["L"]), s["a"], s["Tmin"], seed=loads.epoch) if s["sa"] else None
    most, out = min(MOVES, int(s["moves"] * table.units)), {}
    for input, (now, rate) in uneven.items():
        side = _side(table, loads, input, now, rate, s["ahead"], budget)
        before, spread, quiet = side.loads, side.copied(), side.copied()
        ways = []
        if spread.absorb():
            even = monitor.imbalance(spread.loads) <= SOON * s["theta"]
            ways.append(spread if even else balance(spread, s["goal"], most, s["gap"], annealing))
        if not ways or float(side.size.sum()) <= budget:
            plain = balance(side, s["goal"], most, s["gap"], annealing)
            if monitor.imbalance(plain.loads) > s["theta"] and quiet.quieten():
                quiet = balance(quiet, s["goal"], most, s["gap"], annealing)
                plain = quiet if monitor.imbalance(quiet.loads) <= s["theta"] else plain
            ways.append(plain)
        least = min(float(way.loads.max()) for way in ways)
        ways = [way for way in ways if way.loads.max() <= WASTE * least]
        best = min(ways, key=lambda way: (monitor.imbalance(way.loads) > s["theta"], float(way.loads.max())))
        budget -= best.spent
        out[input] = before, best
    return out


def _settings(table: RoutingTable) -> dict[str, float]:
    assert isinstance(table, KeyedTable)
    return DEFAULTS | dict(table.settings)


def _soon(now: SideLoads, theta: float) -> float:
    """The LI from which to act: near to the threshold, but not within what chance makes of even loads."""
    chance = monitor.noise(now.stored, SURE) * monitor.noise(now.probing, SURE)
    return min(theta, max(SOON * theta, chance))


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
