"""Keys that are placed one by one, as a Spark expression: a perfect hash table of literals, with no join and no job.

    slot = (key mod SLOTS + displacement[group of the key]) mod SLOTS
    keys[slot] = key ?  ways[slot][content hash mod number of ways]  :  the table's own expression

Invariant: every key of the table finds itself in its slot; any other key finds another one, or NULL.
Cost: O(1) a row. The arrays are objects to the generated code and no part of its text, so that other keys do not
compile it again; a table that outgrows its slots does, once a doubling.
Source: hash tables by displacement (Tarjan and Yao 1979), first fit.
"""

from __future__ import annotations

import numpy as np

from evenkeel.streaming.strategies.base import Exceptions, folded

SLOTS = 64
"""At the least."""
GROUP_SHIFT = 20
"""Groups are told by other bits than slots, and by none that whole keys count up in (`key_hash.py`)."""


def slots_of(keys: list[int]) -> tuple[list[int], list[int | None]]:
    """Displacements by group, and the key in each slot: there are half as many groups as slots."""
    slots = SLOTS
    while slots < 2 * len(keys) or (found := _fit(keys, slots)) is None:
        slots *= 2
    return found


def _fit(keys: list[int], slots: int) -> tuple[list[int], list[int | None]] | None:
    groups: dict[int, list[int]] = {}
    for key in keys:
        groups.setdefault(_group(key, slots), []).append(key)
    moved, table = [0] * (slots // 2), np.full(slots, False)
    placed: list[int | None] = [None] * slots
    for group, members in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        at = np.array([k % slots for k in members])
        if len(set(at.tolist())) < len(at):
            return None
        by = next((d for d in range(slots) if not table[(at + d) % slots].any()), None)
        if by is None:
            return None
        moved[group] = by
        table[(at + by) % slots] = True
        for key in members:
            placed[(key + by) % slots] = key
    return moved, placed


def _group(key: int, slots: int) -> int:
    return (key >> GROUP_SHIFT) % (slots // 2)


def with_exceptions(exceptions: Exceptions, key: str, row: str, otherwise: str) -> str:
    """`otherwise`, an expression of type array<int>, but for the keys that have ways of their own."""
    moved, placed = slots_of(list(exceptions))
    groups, slots = len(moved), len(placed)
    by = f"{folded(moved, 'array<int>')}[cast(pmod(shiftright({key}, {GROUP_SHIFT}), {groups}L) AS int)]"
    slot = f"pmod(cast(pmod({key}, {slots}L) AS int) + {by}, {slots})"
    known = f"{folded(placed, 'array<bigint>')}[{slot}]"
    ways = [exceptions[k] if k is not None else None for k in placed]
    mine = f"{folded(ways, 'array<array<array<int>>>')}[{slot}]"
    way = f"{mine}[cast(pmod({row}, cast(size({mine}) AS bigint)) AS int)]"
    return f"CASE WHEN {known} = {key} THEN {way} ELSE {otherwise} END"
