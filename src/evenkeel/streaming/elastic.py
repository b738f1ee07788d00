"""Elastic units: each subgroup of units grows when it is full and shrinks when it is idle.

    requesting    tau = rows held by the subgroup / (units * capacity)
                  out if tau > T_h, down if tau < T_l; confirmed when decided `patience` epochs in a row
    scaling       Delta = (tau / Psi - 1) * units                                                     formula (7)
                  out:  new units, numbered after the last, take parts of the rows of the fullest
                  down: the parts of the units that go are shared out among those that stay, and the last units
                        take the free numbers: whole units that are only renumbered move by metadata

With windows state does not move (BiStream): new rows go by the new lists at once, a unit that is to go is drained,
that is, probed until its rows have expired; its number is then free for the next that is needed.
Invariant: units are 0 .. n-1 with `least <= n <= most`; a table that does not move state probes wherever the one
before stored. Cost: out by d units moves d / (units + d) of a subgroup's rows, which no way can undercut.
Source: BiStream, section 5. Subgroups are those of the join-biclique; hashing and FastJoin are one subgroup, and
as they store a key where its slot says, theirs move with windows too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any

from evenkeel.errors import StreamNotSupported
from evenkeel.streaming.strategies.base import Adaptive, Loads, RoutingTable, Step, Strategy, Watch
from evenkeel.streaming.strategies.contrand import Biclique, Units
from evenkeel.streaming.strategies.keyed import KeyedTable

SETTINGS = {"capacity": 1_000_000.0, "high": 0.8, "low": 0.3, "aim": 0.6, "patience": 3.0}
"""Rows a unit may hold, T_h, T_l, Psi, and decisions in a row."""
FINE = 16
"""Parts a unit, so that rows can be shared out evenly."""
Subgroup = tuple[str, int]
"""An input and the number of its subgroup; ('', 0) for all units together."""
ELASTIC = ("hash", "random", "contrand", "fastjoin")


def elastic(strategy: Strategy, least: int, most: int) -> Adaptive:
    """The strategy with so many units, from the least to the most."""
    if strategy.name not in ELASTIC:
        raise StreamNotSupported.elastic(strategy.name, ELASTIC)
    return Elastic(strategy, least, most)


@dataclass(frozen=True)
class Elastic:
    inner: Strategy
    least: int
    most: int
    needs_rows: bool = True
    needs_band: bool = False

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def summary(self) -> str:
        return self.inner.summary

    @property
    def needs_equality(self) -> bool:
        return self.inner.needs_equality

    @property
    def together(self) -> bool:
        return False

    @property
    def copies(self) -> bool:
        return self.inner.copies

    @property
    def options(self) -> tuple[str, ...]:
        return (*getattr(self.inner, "options", ()), *SETTINGS)

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, float]) -> RoutingTable:
        mine = {k: float(v) for k, v in options.items() if k in SETTINGS or k == "windowed"}
        if self.name == "hash":
            return KeyedTable.start(inputs, units, self.name, mine)
        table = self.inner.start(inputs, units, {k: v for k, v in options.items() if k not in ("windowed", *SETTINGS)})
        assert isinstance(table, Biclique | KeyedTable)
        return replace(table, settings={**table.settings, **mine})

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return self.inner.from_json(doc)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return self._adaptive().watch(table, memory.get("inner", {})) if self._adapts else Watch()

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, Biclique | KeyedTable)
        if isinstance(table, Biclique) and any(map(any, table.draining.values())):
            freed = drained(table, loads)
            reason = "units that were drained are free" if freed is not None else ""
            return Step({}, freed, reason, moves=False)
        s = SETTINGS | {k: v for k, v in table.settings.items() if k in SETTINGS}
        asked, times = decide(held(table, loads), memory.get("times", {}), s)
        bounded = self._bounded(asked, table)
        if not bounded:
            return self._inner(table, loads, memory, times)
        steer = isinstance(table, Biclique) and bool(table.settings.get("windowed"))
        new = resize(table, bounded, steer)
        reason = f"units {table.units} to {new.units}: " + ", ".join(
            f"{g[0] + ' ' + str(g[1]) if g[0] else 'all'} {d:+d}" for g, d in bounded.items()
        )
        return Step({}, new, reason, moves=not steer)

    def _inner(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any], times: Mapping[str, Any]) -> Step:
        """The number of units is right: whoever balances them may act. It forgets what it knew of another number."""
        if not self._adapts:
            return Step({"times": times})
        step = self._adaptive().adapt(table, loads, memory.get("inner", {}))
        return replace(step, memory={"inner": dict(step.memory), "times": times})

    @property
    def _adapts(self) -> bool:
        return hasattr(self.inner, "adapt")

    def _adaptive(self) -> Adaptive:
        return self.inner  # type: ignore[return-value]

    def _bounded(self, asked: Mapping[Subgroup, int], table: RoutingTable) -> dict[Subgroup, int]:
        """What is asked for, as far as the number of units allows; the subgroups that ask for most come first."""
        room, spare = self.most - table.units, table.units - self.least
        out = {}
        for group, change in sorted(asked.items(), key=lambda g: -abs(g[1])):
            allowed = min(change, room) if change > 0 else -min(-change, spare)
            if allowed:
                out[group] = allowed
                room, spare = room - max(0, allowed), spare + min(0, allowed)
        return out


def held(table: Biclique | KeyedTable, loads: Loads) -> dict[Subgroup, tuple[float, int]]:
    """Rows and units of each subgroup."""
    by_unit = {u.unit: u for u in loads.units}
    if isinstance(table, KeyedTable):
        return {("", 0): (float(sum(sum(u.stored.values()) for u in loads.units)), table.units)}
    return {
        (i, n): (float(sum(by_unit[u].stored.get(i, 0) for u in set(g) if u in by_unit)), len(set(g)))
        for i, groups in table.groups.items()
        for n, g in enumerate(groups)
    }


def decide(
    rows: Mapping[Subgroup, tuple[float, int]], before: Mapping[str, int], s: Mapping[str, float]
) -> tuple[dict[Subgroup, int], dict[str, int]]:
    """The changes that are confirmed, and how often in a row each subgroup was decided on: negative for down."""
    asked, times = {}, {}
    for group, (stored, units) in rows.items():
        tau = stored / (units * s["capacity"])
        now = 1 if tau > s["high"] else -1 if tau < s["low"] and units > 1 else 0
        name = f"{group[0]}/{group[1]}"
        same = before.get(name, 0) * now > 0
        times[name] = (before.get(name, 0) if same else 0) + now
        if abs(times[name]) >= s["patience"]:
            change = delta(tau, s["aim"], units)
            asked[group] = ceil(change) if now > 0 else -min(units - 1, floor(-change))
    return {g: d for g, d in asked.items() if d}, times


def delta(tau: float, aim: float, units: int) -> float:
    """Formula (7)."""
    return (tau / aim - 1) * units


def resize(table: Biclique | KeyedTable, changes: Mapping[Subgroup, int], steer: bool) -> Biclique | KeyedTable:
    if isinstance(table, KeyedTable):
        return _resize_keyed(table, sum(changes.values()))
    groups = {i: list(gs) for i, gs in table.groups.items()}
    gone: dict[str, list[Units]] = {i: [() for _ in gs] for i, gs in table.groups.items()}
    units = table.units
    for (i, n), change in changes.items():
        group = groups[i][n]
        members = sorted(set(group))
        if change > 0:
            used = {u for gs in groups.values() for g in gs for u in g}
            new = [u for u in range(len(used) + change) if u not in used][:change]
            units = max(units, max(new) + 1)
            groups[i][n] = shared(group, [*members, *new])
        else:
            groups[i][n] = shared(group, members[: len(members) + change])
            gone[i][n] = tuple(members[len(members) + change :])
    made = replace(
        table, units=units, groups={i: tuple(g) for i, g in groups.items()}, version=table.version + 1,
        draining={i: tuple(g) for i, g in gone.items()} if steer else {},
    )  # fmt: skip
    return made if steer else renumbered(made)


def drained(table: Biclique, loads: Loads) -> Biclique | None:
    """The table without its draining units, once they are empty."""
    by_unit = {u.unit: u for u in loads.units}
    units = {u for gs in table.draining.values() for g in gs for u in g}
    if any(sum(by_unit[u].stored.values()) for u in units if u in by_unit):
        return None
    last = max(u for gs in table.groups.values() for g in gs for u in g)
    return replace(table, draining={}, units=last + 1, version=table.version + 1)


def renumbered(table: Biclique) -> Biclique:
    """Units numbered without gaps: the last ones take the numbers of those that are gone."""
    used = sorted({u for gs in table.groups.values() for g in gs for u in g})
    free = [u for u in range(len(used)) if u not in set(used)]
    to = {u: u for u in used} | dict(zip(reversed([u for u in used if u >= len(used)]), free, strict=True))
    groups = {i: tuple(tuple(to[u] for u in g) for g in gs) for i, gs in table.groups.items()}
    return replace(table, units=len(used), groups=groups)


def shared(parts: Sequence[int], members: Sequence[int]) -> Units:
    """The parts of a subgroup shared out evenly among the members, as few of them as can be in other hands."""
    times = max(1, ceil(FINE * len(members) / len(parts)))
    return evened(list(parts) * times, members)


def evened(parts: Sequence[int], members: Sequence[int]) -> Units:
    """The same parts, each member having as many as any other; those that need not change hands do not."""
    out = list(parts)
    fair = {u: len(out) // len(members) + (n < len(out) % len(members)) for n, u in enumerate(members)}
    have = {u: 0 for u in members}
    loose = []
    for n, u in enumerate(out):
        if u in have and have[u] < fair[u]:
            have[u] += 1
        else:
            loose.append(n)
    wanting = [u for u in members for _ in range(fair[u] - have[u])]
    for n, u in zip(loose, wanting, strict=True):
        out[n] = u
    return tuple(out)


def _resize_keyed(table: KeyedTable, change: int) -> KeyedTable:
    """More or fewer units for all slots; keys of units that go are shared out among the others."""
    units = table.units + change
    members = list(range(units))
    slots = {i: evened(s, members) for i, s in table.slots.items()}
    keys = {
        i: {k: tuple(u if u < units else (u + n) % units for n, u in enumerate(us)) for k, us in ks.items()}
        for i, ks in table.keys.items()
    }
    return table.changed(slots, keys, units)
