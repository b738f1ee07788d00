"""Which shards meet which, from metadata alone: a join becomes tasks, tasks become partitions.

With c the greatest common factor of both bucket counts, keys of bucket i and of bucket j can be equal only where
i = j (mod c); so there are c groups of buckets, and only shards of one group meet.

Invariant: every pair of matching rows meets in exactly one task that gives pairs, and every row of a preserved side
is judged, matched or not, by exactly one task, which sees all keys it could match. Hence nothing is reconciled
afterwards: a task has a driving shard, read once, whose rows it may preserve, and partners of the other side.

    left drives    a task a left shard, partners: all right shards of the group
    right drives   the other way round
    crossed        a task a pair of shards; whether a preserved row matches is asked of the other side's keys alone

The way is chosen group by group: no task above the limit if that can be had, then the fewest bytes. So the smaller
side is replicated, and a large shard is not read again. Paper: SMBJoinSkewed, III-B (`ResolveBucketingFn`).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from evenkeel.bucketed.metadata import NULL_BUCKET, DataFile, TableMeta, Unit
from evenkeel.types import SIDES, How, Side, other, preserved

Mode = Literal["inner", "outer", "semi", "anti"]
"""What becomes of a driving row: with each match; so, or alone; alone if matched; alone if unmatched."""
LEAST_BYTES = 1 << 20
"""Pairs below this are given together to one task."""
OPEN_COST = 64 << 10
"""What a file costs beyond its bytes."""


@dataclass(frozen=True)
class Task:
    """Merge one shard with what it can match."""

    drive: Side
    mode: Mode
    driver: tuple[DataFile, ...]
    partners: tuple[tuple[DataFile, ...], ...]
    """The files of each partner shard."""
    keys_only: bool
    """Only the keys of the partners are read."""
    group: int

    @property
    def driver_bytes(self) -> int:
        return sum(f.bytes for f in self.driver)

    @property
    def partner_bytes(self) -> int:
        files = (f for unit in self.partners for f in unit)
        return sum(f.key_bytes if self.keys_only else f.bytes for f in files)

    @property
    def bytes(self) -> int:
        return self.driver_bytes + self.partner_bytes

    @property
    def cost(self) -> int:
        return self.bytes + OPEN_COST * (len(self.driver) + sum(len(u) for u in self.partners))


@dataclass(frozen=True)
class PairPlan:
    """The tasks of a join, longest first, and which of them go together."""

    tasks: tuple[Task, ...]
    partitions: tuple[tuple[Task, ...], ...]
    common_factor: int
    table_bytes: int

    @property
    def read_bytes(self) -> int:
        return sum(t.bytes for t in self.tasks)

    @property
    def replicated_bytes(self) -> int:
        """What is read again: the first reading of every file does not count."""
        seen: dict[str, int] = {}
        for t in self.tasks:
            for f in t.driver:
                seen[f.path] = max(seen.get(f.path, 0), f.bytes)
            for f in (f for u in t.partners for f in u):
                seen[f.path] = max(seen.get(f.path, 0), f.key_bytes if t.keys_only else f.bytes)
        return self.read_bytes - sum(seen.values())


def common_factor(left: TableMeta, right: TableMeta) -> int:
    return math.gcd(left.buckets, right.buckets)


def pairs(left_buckets: int, right_buckets: int) -> list[tuple[int, int]]:
    """The pairs of buckets whose keys can be equal: left * right / gcf of them."""
    c = math.gcd(left_buckets, right_buckets)
    return [(i, j) for i in range(left_buckets) for j in range(i % c, right_buckets, c)]


def groups(meta: TableMeta, factor: int) -> dict[int, list[Unit]]:
    """The shards of each group of buckets; rows with a NULL key match nothing and are in none."""
    found: dict[int, list[Unit]] = defaultdict(list)
    for unit in meta.units:
        if unit.bucket != NULL_BUCKET:
            found[unit.bucket % factor].append(unit)
    return dict(found)


def resolve(
    left: TableMeta, right: TableMeta, how: How, parallelism: int = 1, only: Iterable[int] | None = None
) -> PairPlan:
    """The tasks of the join; with `only`, of these groups, and without the rows whose key is NULL."""
    c = common_factor(left, right)
    sides: dict[Side, dict[int, list[Unit]]] = {"left": groups(left, c), "right": groups(right, c)}
    tasks: list[Task] = []
    for g in range(c) if only is None else sorted(only):
        tasks += _group(g, {s: sides[s].get(g, []) for s in SIDES}, how)
    if only is None:
        tasks += null_tasks(left, right, how)
    tasks.sort(key=lambda t: -t.cost)
    return PairPlan(tuple(tasks), pack(tasks, parallelism), c, left.bytes + right.bytes)


def null_tasks(left: TableMeta, right: TableMeta, how: How) -> list[Task]:
    """Rows with a NULL key come back where their side is preserved, except in a semi-join."""
    if how == "left_semi":
        return []
    mode: Mode = "anti" if how == "left_anti" else "outer"
    metas: dict[Side, TableMeta] = {"left": left, "right": right}
    return [
        Task(s, mode, u.files, (), True, NULL_BUCKET)
        for s in SIDES
        if s in preserved(how)
        for u in metas[s].by_bucket.get(NULL_BUCKET, ())
    ]


def _group(g: int, units: dict[Side, list[Unit]], how: How) -> list[Task]:
    keep = preserved(how)

    def task(side: Side, unit: Unit, mode: Mode, partners: Sequence[Unit]) -> Task:
        keys_only = mode in ("semi", "anti")
        return Task(side, mode, unit.files, tuple(u.files for u in partners), keys_only, g)

    if how in ("left_semi", "left_anti"):
        if how == "left_semi" and not units["right"]:
            return []
        return [task("left", u, "semi" if how == "left_semi" else "anti", units["right"]) for u in units["left"]]
    if not units["left"] or not units["right"]:
        return [task(s, u, "outer", ()) for s in SIDES if s in keep for u in units[s]]

    def judged(side: Side) -> list[Task]:
        """Rows of a preserved side that match nothing, found by the other side's keys."""
        return [task(side, u, "anti", units[other(side)]) for u in units[side]] if side in keep else []

    ways: list[list[Task]] = []
    for s in SIDES:
        mode: Mode = "outer" if s in keep else "inner"
        ways.append([task(s, u, mode, units[other(s)]) for u in units[s]] + judged(other(s)))
    if len(units["left"]) > 1 and len(units["right"]) > 1:
        crossed = [task("left", u, "inner", [v]) for u in units["left"] for v in units["right"]]
        ways.append(crossed + judged("left") + judged("right"))
    limit = 2 * max(u.bytes for s in SIDES for u in units[s])

    def badness(way: list[Task]) -> tuple[int, int]:
        return max(0, max(t.cost for t in way) - limit), sum(t.cost for t in way)

    return min(ways, key=badness)


def pack(tasks: Sequence[Task], parallelism: int) -> tuple[tuple[Task, ...], ...]:
    """Small tasks together, as many partitions as keep the largest task the measure; the longest first."""
    if not tasks:
        return ()
    costs = [t.cost for t in tasks]
    measure = max(LEAST_BYTES, max(costs))
    count = min(len(tasks), max(parallelism, math.ceil(sum(costs) / measure)))
    heap = [(0, i) for i in range(count)]
    bins: list[list[Task]] = [[] for _ in range(count)]
    for t in sorted(tasks, key=lambda t: -t.cost):
        load, i = heapq.heappop(heap)
        bins[i].append(t)
        heapq.heappush(heap, (load + t.cost, i))
    return tuple(tuple(b) for b in sorted(bins, key=lambda b: -sum(t.cost for t in b)))
