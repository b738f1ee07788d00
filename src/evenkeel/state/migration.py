"""Migration: state goes from where one routing table stores it to where the next one does, as a diff of two layouts.

    waiting   segments not looked at yet          -- `choose`, a bounded number of bytes at a time -->
    staged    owners: change hands as they are    cut: rewritten by destination     pieces: what was written
    swap      one commit: owners and pieces in, cut segments out, the new table in force

Invariant: until the swap the stage is no state, so a crash at any moment leaves the old layout whole; at the swap
every live segment is staged, and a stored row is exactly where the new table stores it: none lost, none doubled.
A row's copy stays in its unit if the new table stores it there; of its copies the one in the smallest unit is sent
to the units that the new table stores in and the old one did not. So whatever can stay, stays.
Cost: a segment whose rows all go to one unit costs a line of metadata; any other is read and written once.
Source: FastJoin (IPDPS 2019), section III-D, whose instances hand over keys while input waits; here nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from evenkeel.state.segment import Segment
from evenkeel.types import Int64

Stored = tuple[Int64, Int64]
"""Where a table stores rows: (row, unit), a row as often as it is stored."""


@dataclass(frozen=True)
class Stage:
    """How far a migration has come, or what one unit did for it in an epoch."""

    owners: Mapping[str, int] = field(default_factory=dict)
    """By path, the unit that a segment belongs to from the swap on, as it is."""
    cut: frozenset[str] = frozenset()
    """Segments whose rows are in pieces, or nowhere, from the swap on."""
    pieces: tuple[Segment, ...] = ()
    rows: int = 0
    """Rows that came to another unit."""
    size: int = 0
    """Their bytes."""
    sources: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()
    seconds: float = 0.0
    """Of one unit in one epoch; over units the longest, over epochs the sum."""

    @property
    def done(self) -> set[str]:
        return {*self.owners, *self.cut}

    def beside(self, others: Iterable[Stage]) -> Stage:
        """What units did at the same time."""
        out = self
        for o in others:
            longest = max(out.seconds, o.seconds)
            out = replace(out._and(o), seconds=longest)
        return out

    def then(self, next: Stage) -> Stage:
        """What one epoch did after the others."""
        return replace(self._and(next), seconds=self.seconds + next.seconds)

    def _and(self, o: Stage) -> Stage:
        return Stage(
            {**self.owners, **o.owners}, self.cut | o.cut, (*self.pieces, *o.pieces), self.rows + o.rows,
            self.size + o.size, self.sources | o.sources, self.targets | o.targets,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        doc = asdict(self)
        for name in ("cut", "sources", "targets"):
            doc[name] = sorted(doc[name])
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Stage:
        return cls(
            dict(doc["owners"]), frozenset(doc["cut"]), tuple(Segment.from_json(s) for s in doc["pieces"]),
            int(doc["rows"]), int(doc["size"]), frozenset(doc["sources"]), frozenset(doc["targets"]), doc["seconds"],
        )  # fmt: skip


def choose(segments: Sequence[Segment], stage: Stage, limit: int) -> tuple[list[Segment], bool]:
    """The segments to stage in this epoch, oldest first, and whether they are all that is left.

    At most `limit` bytes, but always one segment, so that there is an end to it.
    """
    done = stage.done
    waiting = sorted((s for s in segments if s.path not in done), key=lambda s: (s.epoch, s.path))
    chosen: list[Segment] = []
    size = 0
    for s in waiting:
        if chosen and size + s.size > limit:
            return chosen, False
        chosen.append(s)
        size += s.size
    return chosen, True


def share(segments: Sequence[Segment], units: Sequence[int]) -> dict[int, tuple[Segment, ...]]:
    """Who works on which segment: longest first to the unit with the least to do; ties in the order of `units`.

    The unit that holds a segment need not be the one that cuts it: it may be the heaviest one.
    """
    work = {u: 0 for u in units}
    out: dict[int, list[Segment]] = {u: [] for u in units}
    for s in sorted(segments, key=lambda s: (-s.size, s.path)):
        least = min(work, key=lambda u: work[u])
        work[least] += s.size
        out[least].append(s)
    return {u: tuple(mine) for u, mine in out.items()}


def swap(stage: Stage, live: Sequence[Segment]) -> list[Segment]:
    """The segments of the new layout, in place of the live ones."""
    missing = [s.path for s in live if s.path not in stage.done]
    assert not missing, f"segments {missing} were not staged"
    return [*(replace(s, unit=stage.owners[s.path]) for s in live if s.path not in stage.cut), *stage.pieces]


def changes(before: Sequence[Segment], after: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Segments to add and to remove, so that one layout becomes another; one that changes owner is only added."""
    owner, kept = {s.path: s.unit for s in before}, {s.path for s in after}
    return [s for s in after if owner.get(s.path) != s.unit], [s for s in before if s.path not in kept]


def destinations(unit: int, rows: int, before: Stored, after: Stored) -> dict[int, Int64]:
    """For the copies in `unit` of rows 0 to rows - 1: by unit, the rows that these copies supply it with.

    A row that is in a unit where the old table does not store it was left there by a table before; it is the only
    copy, and supplies all units that the new table stores it in.
    """
    span = int(max(unit, before[1].max(initial=0), after[1].max(initial=0))) + 1
    first = np.full(rows, span, dtype=np.int64)
    np.minimum.at(first, before[0], before[1])
    here = np.zeros(rows, dtype=bool)
    here[before[0][before[1] == unit]] = True
    sends = ~here | (first == unit)
    known = np.sort(before[0] * span + before[1])
    row, to = after
    new = ~_in(known, row * span + to) | ~here[row]
    supplied = (to == unit) | (sends[row] & new)
    row, to = row[supplied], to[supplied]
    return {int(v): np.sort(row[to == v]) for v in np.unique(to)}


def _in(known: Int64, asked: Int64) -> Any:
    at = np.searchsorted(known, asked)
    return (at < len(known)) & (known[np.minimum(at, max(0, len(known) - 1))] == asked) if len(known) else at < 0
