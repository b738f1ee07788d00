"""The epoch loop: it owns order, progress and recovery, and knows neither Spark nor any strategy's inside.

    1 begin    a committed epoch is skipped; an epoch that leaves a gap is refused
    2 route    by the routing table of the last commit
    3 join     the executor runs the units; results are handed to the sink with the epoch's number
    4 sink     results are durable, or the epoch is run again
    5 adapt    the strategy reads the loads and may ask for another routing table; state goes where that wants it
    6 commit   one Delta commit: segments, routing table, watermark, counters, transaction (query, epoch)
    7 return   Spark commits its offsets

A table that moves few bytes is in force with the commit of the epoch that asked for it. One that moves more is brought
into force by the epochs that follow, beside their own work: they stage the state where it wants it, a bounded number
of bytes each, and the last one's commit swaps state and table at once.

Invariant: a result of epoch e is in an idempotent sink exactly once if e is committed, and at most once if not:
a crash before 6 repeats the epoch from the same version of the state, a crash after 6 skips it.
Time is passed in. A test may stop the loop at any step through `on_step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evenkeel.errors import StateMismatch
from evenkeel.state import Segment, Snapshot, StateTable, Tiers
from evenkeel.state.migration import Stage, changes, choose, share, swap
from evenkeel.streaming.due import Asking, Due, asking
from evenkeel.streaming.migrations import KEPT, Migration, Record
from evenkeel.streaming.moving import Diff, Moving
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.strategies import Loads, RoutingTable, Strategy
from evenkeel.streaming.strategies.auto import Auto
from evenkeel.streaming.strategies.base import Options, Tells, UnitLoad, Watch, adapts
from evenkeel.streaming.unit import UnitReport, UnitTask
from evenkeel.streaming.windows import watermark

STEPS = ("begin", "routed", "joined", "sunk", "reported", "adapted", "committed", "cleaned")
"""Where an epoch can be stopped, in order."""
VACUUM_EVERY = 64
ARCHIVE = 10
"""A merged segment spans at most a tenth of the window: BiStream's archive period, section 6.2."""
MOVED = 32 << 20
"""Bytes of segments that a migration looks at in an epoch, or twice what the last epoch added if that is more: so
that it gains on a stream of any speed. One that is done with so many is done at once."""


class Executor(Protocol):
    """Runs the units of an epoch, somewhere."""

    def start(self, plan: EpochPlan, batch: Any) -> Any:
        """The results of the epoch, possibly not computed yet."""
        ...

    def finish(self, plan: EpochPlan) -> list[UnitReport]:
        """The reports of all units, each unit once; computes what the sink did not ask for."""
        ...

    def move(self, plan: EpochPlan, shares: Sequence[Moving]) -> list[Stage]:
        """Cut segments after the epoch's units are done: what became of each share."""
        ...

    def forget(self, epoch: int, removed: Sequence[Segment]) -> None:
        """The epoch is committed; these segments will not be asked for again."""
        ...


Sink = Callable[[Any, int], None]


@dataclass(frozen=True)
class EpochPlan:
    epoch: int
    table: RoutingTable
    tasks: tuple[UnitTask, ...]
    watermark: int | None
    due: Due = (None, None)
    """Preserved rows whose partners are in several units, and that are shown now unless one matches."""
    rows: bool = False
    """Whether rows are stored with the hash of their content."""
    migration: Migration | None = None
    """What is on its way, as of the last commit."""
    last: bool = False
    """Whether this epoch's commit brings it into force."""

    def asking(self, spec: JoinSpec) -> list[Asking]:
        """The segments they are in."""
        return asking([s for t in self.tasks for held in t.segments.values() for s in held], self.due, spec)


@dataclass(frozen=True)
class Turn:
    """What an epoch's commit says of routing."""

    table: RoutingTable
    memory: Mapping[str, Any]
    records: Sequence[Record]
    migration: Migration | None = None
    """What is on its way after it."""
    swapped: Stage | None = None
    """What it brings into force."""


@dataclass
class EpochReport:
    """What an epoch did, for people."""

    epoch: int
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    emitted: int = 0
    sent: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    segments: int = 0
    watermark: int | None = None
    version: int = 0
    """Of the routing table that the next epoch is routed by."""
    migration: Record | None = None
    """What this epoch's commit brought into force."""
    units: list[UnitReport] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        return sum(self.rows.values()) / self.seconds if self.seconds > 0 else 0.0


class Driver:
    def __init__(
        self,
        state: StateTable,
        spec: JoinSpec,
        strategy: Strategy,
        units: int,
        executor: Executor,
        sink: Sink,
        *,
        options: Options | None = None,
        moved: int = MOVED,
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[str, int], None] | None = None,
    ) -> None:
        self.state, self.spec, self.strategy = state, spec, strategy
        self.executor, self.sink, self.clock, self.moved = executor, sink, clock, moved
        self.on_step = on_step or (lambda step, epoch: None)
        progress = state.snapshot.progress
        self.table: RoutingTable = (
            strategy.from_json(progress["routing"]) if progress else strategy.start(INPUTS, units, options or {})
        )
        period = spec.window.size // ARCHIVE if spec.window.kind != "none" else None
        self.tiers = Tiers(period=period) if period is None else Tiers(period=max(1, period))
        self.last: EpochReport | None = None
        self.loads: Loads | None = None
        self._cleaned = state.snapshot.epoch

    def run(self, epoch: int, batch: Any) -> EpochReport | None:
        """One micro-batch. None if it had been committed before."""
        started = self.clock()
        before = self.state.snapshot
        if epoch <= before.epoch:
            return None
        if epoch > before.epoch + 1:
            raise StateMismatch.behind(self.state.root, before.epoch, epoch)
        self.on_step("begin", epoch)
        plan = self.plan(epoch, before)
        self.on_step("routed", epoch)
        results = self.executor.start(plan, batch)
        self.on_step("joined", epoch)
        self.sink(results, epoch)
        self.on_step("sunk", epoch)
        reports = self.executor.finish(plan)
        self.on_step("reported", epoch)
        removed = self._commit(plan, before, reports)
        self.on_step("committed", epoch)
        self.executor.forget(epoch, removed)
        # What a migration has staged is no state yet, so it would be swept away.
        if epoch - self._cleaned >= VACUUM_EVERY and self.migration is None:
            self.state.vacuum()
            self._cleaned = epoch
        self.on_step("cleaned", epoch)
        self.last = self._report(plan, reports, self.clock() - started)
        return self.last

    def plan(self, epoch: int, before: Snapshot) -> EpochPlan:
        mark = before.progress.get("watermark")
        due: Due = (None, None)
        if self.spec.preserved:
            window = self.spec.window
            due = window.useless_before(before.progress.get("watermark_before")), window.useless_before(mark)
        held: dict[tuple[int, str], list[Segment]] = {}
        for s in before.segments:
            held.setdefault((s.unit, s.input), []).append(s)
        migration = self._untouched(self.migration, before.segments)
        moving, last = self._moving(migration, before.segments, before.epoch)
        busy = migration.stage.done | {s.path for m in moving.values() for s in m.cuts} if migration else set()
        free = [] if last else [s for s in before.segments if s.path not in busy]
        merges = self.tiers.plan(free, before.progress.get("fresh", 0))
        watch = self.strategy.watch(self.table, self.memory) if adapts(self.strategy) and not migration else Watch()
        alone: Due = due if self.strategy.together else (None, None)
        tasks = tuple(
            UnitTask(
                u, epoch, self.state.root, {i: tuple(held.get((u, i), ())) for i in INPUTS}, mark, alone,
                {i: tuple(merges.get((u, i), ())) for i in INPUTS},
                watch.keys if watch.units is None or u in watch.units else 0, watch.rate, moving.get(u),
            )
            for u in range(self.table.units)
        )  # fmt: skip
        asked: Due = (None, None) if self.strategy.together else due
        return EpochPlan(epoch, self.table, tasks, mark, asked, self._rows(self.table), migration, last)

    def _rows(self, table: RoutingTable) -> bool:
        """Whether rows stored by a table carry the hash of their content."""
        strategy = self.strategy.of(table) if isinstance(self.strategy, Auto) else self.strategy
        return self.spec.rows or (adapts(strategy) and strategy.needs_rows)

    @property
    def migration(self) -> Migration | None:
        """What is on its way."""
        doc = self.state.snapshot.progress.get("migration")
        return None if doc is None else Migration.from_json(doc)

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the strategy remembers."""
        return dict(self.state.snapshot.progress.get("memory", {}))

    @property
    def migrations(self) -> list[Record]:
        """The last ones that came into force, the oldest first."""
        return [Record.from_json(d) for d in self.state.snapshot.progress.get("migrations", [])]

    def _untouched(self, migration: Migration | None, live: Sequence[Segment]) -> Migration | None:
        """With the segments staged that stay as they are, as far as the table can tell without looking at them."""
        if migration is None or not isinstance(self.table, Tells):
            return migration
        touched = self.table.touched(self.strategy.from_json(migration.table))
        if touched is None:
            return migration
        done = migration.stage.done
        stay = {s.path: s.unit for s in live if s.path not in done and s.unit not in touched[s.input]}
        return migration.staged([Stage(owners=stay)])

    def _limit(self, live: Sequence[Segment], epoch: int) -> int:
        """Bytes that a migration may look at in one epoch."""
        return max(self.moved, 2 * sum(s.size for s in live if s.epoch == epoch))

    def _moving(
        self, migration: Migration | None, live: Sequence[Segment], epoch: int
    ) -> tuple[dict[int, Moving], bool]:
        """Each unit's share of the migration, and whether that is all of it; `epoch` brought the newest segments."""
        if migration is None:
            return {}, False
        chosen, last = choose(live, migration.stage, self._limit(live, epoch))
        seconds = {u.unit: u.seconds for u in self.loads.units} if self.loads is not None else {}
        shares = share(chosen, sorted(range(self.table.units), key=lambda u: (seconds.get(u, 0.0), u)))
        target = self.strategy.from_json(migration.table)
        diff = Diff(self.table, target, self._rows(target))
        return {u: Moving(diff, cuts, last, self.tiers) for u, cuts in shares.items()}, last

    def _commit(self, plan: EpochPlan, before: Snapshot, reports: Sequence[UnitReport]) -> list[Segment]:
        progress = before.progress
        newest: dict[str, int | None] = {}
        for i in INPUTS:
            seen = [progress.get("newest", {}).get(i), *(r.newest.get(i) for r in reports)]
            newest[i] = max((t for t in seen if t is not None), default=None)
        mark = watermark(newest, self.spec.lateness) if self.spec.time else None
        old = progress.get("watermark")
        mark = old if mark is None else mark if old is None else max(mark, old)
        replaced = {s.path for r in reports for s in r.removed}
        useless = self._useless_before(old, mark)
        expired = [s for s in before.segments if s.path not in replaced and _is_older(s, useless)]
        added = [s for r in reports for s in r.added if not _is_older(s, useless)]
        removed = [s for r in reports for s in r.removed] + expired
        totals = progress.get("totals", {})
        gone = {s.path for s in removed}
        live = [*(s for s in before.segments if s.path not in gone), *added]
        units = [_load(r, t.segments) for r, t in zip(reports, plan.tasks, strict=True)]
        self.loads = Loads(plan.epoch, units, self._limit(live, plan.epoch))
        turn = self._turn(plan, reports, live)
        unused: list[Segment] = []
        if turn.swapped is not None:
            unused = [s for s in added if s.path in turn.swapped.cut]
            after = [s for s in swap(turn.swapped, live) if not _is_older(s, useless)]
            added, removed = changes(before.segments, after)
        doc = {
            "epoch": plan.epoch,
            "routing": turn.table.to_json(),
            "memory": turn.memory,
            "migration": None if turn.migration is None else turn.migration.to_json(),
            "migrations": [r.to_json() for r in turn.records],
            "newest": newest,
            "watermark": mark,
            "watermark_before": old,
            "fresh": sum(sum(r.stored_now.values()) for r in reports),
            "totals": {
                "rows": _sum(totals.get("rows"), [r.rows for r in reports]),
                "late": _sum(totals.get("late"), [r.late for r in reports]),
                "pairs": totals.get("pairs", 0) + sum(r.pairs for r in reports),
                "emitted": totals.get("emitted", 0) + sum(r.emitted for r in reports),
            },
        }
        self.on_step("adapted", plan.epoch)
        self.state.commit(plan.epoch, added, removed, doc)
        self.table = turn.table
        return [*removed, *unused]

    def _turn(self, plan: EpochPlan, reports: Sequence[UnitReport], live: Sequence[Segment]) -> Turn:
        """What the epoch makes of the routing table: a migration goes on or comes into force, or the strategy acts."""
        assert self.loads is not None
        table, memory, records = self.table, self.memory, self.migrations
        if plan.migration is not None:
            migration = plan.migration.staged([r.stage for r in reports if r.stage is not None])
            if not plan.last:
                return Turn(table, memory, records, migration)
            return self._in_force(plan, migration, self.strategy.from_json(migration.table), memory, records)
        records = [r.measured(table.version, self.loads) for r in records]
        if not adapts(self.strategy):
            return Turn(table, memory, records)
        step = self.strategy.adapt(table, self.loads, memory)
        if step.table is None:
            return Turn(table, step.memory, records)
        asked = Migration.of(self.loads, table, step)
        if not step.moves:
            return Turn(step.table, step.memory, [*records, asked.record(plan.epoch, step.table)][-KEPT:])
        small = self._untouched(asked, live)
        shares, last = self._moving(small, live, plan.epoch)
        if small is None or not last:
            return Turn(table, step.memory, records, asked)
        moved = small.staged(self.executor.move(plan, [m for m in shares.values() if m.cuts]))
        return self._in_force(plan, moved, step.table, step.memory, records)

    @staticmethod
    def _in_force(
        plan: EpochPlan, done: Migration, table: RoutingTable, memory: Mapping[str, Any], records: Sequence[Record]
    ) -> Turn:
        return Turn(table, memory, [*records, done.record(plan.epoch, table)][-KEPT:], None, done.stage)

    def _useless_before(self, old: int | None, mark: int | None) -> int | None:
        """Segments that end before this time may go: Theorem 1.

        Where unmatched rows are shown, rows are probed once more in the epoch after they are due, so partners stay
        for as long as that may need them.
        """
        window = self.spec.window
        if not self.spec.preserved:
            return window.useless_before(mark)
        due = window.useless_before(old)
        return None if due is None else due - (window.size if window.kind == "sliding" else 0)

    def _report(self, plan: EpochPlan, reports: Sequence[UnitReport], seconds: float) -> EpochReport:
        now = self.state.snapshot
        return EpochReport(
            plan.epoch,
            seconds,
            _sum(None, [r.rows for r in reports]),
            _sum(None, [r.late for r in reports]),
            sum(r.pairs for r in reports),
            sum(r.emitted for r in reports),
            sum(sum(r.received.values()) for r in reports),
            now.rows,
            now.size,
            len(now.segments),
            now.progress.get("watermark"),
            self.table.version,
            next((r for r in self.migrations if r.epoch == plan.epoch), None),
            list(reports),
        )


def _is_older(s: Segment, time: int | None) -> bool:
    return time is not None and s.max_time is not None and s.max_time < time


def _sum(before: Mapping[str, int] | None, parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {i: (before or {}).get(i, 0) + sum(p.get(i, 0) for p in parts) for i in INPUTS}


def _load(r: UnitReport, held: Mapping[str, Sequence[Segment]]) -> UnitLoad:
    """The bytes of the epoch's own rows are taken to be those of the rows before them."""
    size = {i: sum(s.size for s in held[i]) for i in INPUTS}
    rows = {i: sum(s.rows for s in held[i]) for i in INPUTS}
    size = {i: round(size[i] * r.stored[i] / rows[i]) for i in INPUTS if rows[i]}
    return UnitLoad(r.unit, r.stored, r.received, r.probing, r.pairs, r.seconds, r.keys, r.sample, r.stored_now, size)
