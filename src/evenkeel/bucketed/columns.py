"""The columns of a join by buckets: the key once, under the left table's name, then the rest of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.bucketed.metadata import TableMeta
from evenkeel.errors import AmbiguousColumn, UnknownColumn
from evenkeel.types import SIDES, How, Side


@dataclass(frozen=True)
class OutColumn:
    """A column of the result; for a key, `source` is its name on the left and `right_key` on the right."""

    name: str
    side: Side
    source: str
    right_key: str | None = None


def result_columns(
    left: TableMeta,
    right: TableMeta,
    how: How,
    suffixes: tuple[str, str],
    wanted: tuple[str, ...] | None = None,
) -> tuple[OutColumn, ...]:
    """In the order of Spark's `join(on=[names])`; with `wanted`, only these, in their order."""
    sides = SIDES[:1] if how in ("left_semi", "left_anti") else SIDES
    metas = {"left": left, "right": right}
    keys = {n.lower() for n in left.names}
    rest = {s: [c for c in metas[s].columns if c not in metas[s].names] for s in sides}
    shared: set[str] = set()
    if len(sides) == 2:
        shared = {c.lower() for c in rest["left"]} & {c.lower() for c in rest["right"]}
    out = [OutColumn(a, "left", a, b) for a, b in zip(left.names, right.names, strict=True)]
    for side, suffix in zip(sides, suffixes, strict=False):
        for c in rest[side]:
            clash = c.lower() in shared or (side == "right" and c.lower() in keys)
            out.append(OutColumn(c + suffix if clash else c, side, c))
    used: set[str] = set()
    for column in out:
        if column.name.lower() in used:
            raise AmbiguousColumn.in_result(column.name, suffixes)
        used.add(column.name.lower())
    return picked(out, wanted)


def picked(out: Sequence[OutColumn], wanted: tuple[str, ...] | None) -> tuple[OutColumn, ...]:
    """Those that are asked for, in their order."""
    if wanted is None:
        return tuple(out)
    by_name = {c.name: c for c in out}
    if not wanted:
        raise UnknownColumn.none_asked(by_name)
    for name in wanted:
        if name not in by_name:
            raise UnknownColumn.in_condition(name, "joined", by_name)
        if wanted.count(name) > 1:
            raise AmbiguousColumn.asked_twice(name)
    return tuple(by_name[n] for n in wanted)
