"""A two-way join as a frozen value that the rules fill in, one field after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from evenkeel.conditions import Condition
from evenkeel.local import LocalJoin
from evenkeel.schemes import Layout, Problem
from evenkeel.stats import JoinStats, RangeStats
from evenkeel.types import SIDES, How, SchemeName, Side


@dataclass(frozen=True)
class Facts:
    """What is known of the inputs without reading them."""

    row_bytes: dict[Side, float] = field(default_factory=lambda: {s: 64.0 for s in SIDES})
    stable_order: dict[Side, bool] = field(default_factory=lambda: {s: False for s in SIDES})
    """Whether a retried task would see the rows in the same order again."""
    size_bytes: dict[Side, float | None] = field(default_factory=lambda: {s: None for s in SIDES})
    """Spark's own estimate of an input's size, where it has one."""
    fits_arrow: bool = True
    """Whether the rows of both inputs can go through Arrow."""
    broadcast_limit: float = 10 * 1024 * 1024
    """Spark's autoBroadcastJoinThreshold in bytes; below 0 is never."""
    cores: int | None = None
    """Regions that run at once; None where the session does not tell, then it is all of them."""
    coalesces: bool = False
    """Whether Spark's adaptive execution may put small partitions together in this session."""
    key_bits: int | None = None
    """How many bits hold any key by its type, if it is one whole number, smaller than a BIGINT."""


@dataclass(frozen=True)
class Candidate:
    """A scheme that was considered. `cost` is the heaviest region, in units of one shuffled row."""

    scheme: str
    layout: Layout
    cost: float
    note: str = ""


@dataclass(frozen=True)
class TwoWay:
    condition: Condition
    how: How
    workers: int
    requested: SchemeName
    facts: Facts
    stats: JoinStats | None = None
    ranges: RangeStats | None = None
    problem: Problem | None = None
    candidates: tuple[Candidate, ...] = ()
    unfitted: tuple[tuple[str, str], ...] = ()
    """Schemes whose planning could not have paid, each with the reason."""
    chosen: Candidate | None = None
    native: bool = False
    """Left to Spark as it is."""
    reason: str = ""
    local: LocalJoin | None = None
    shared_tasks: int | None = None
    """Tasks that the regions share; None where every region is a task."""

    @property
    def needs_statistics(self) -> bool:
        """Whether there is anything to be chosen by them."""
        return self.requested not in ("hash", "broadcast") and self.condition.kind != "cross"

    @property
    def tasks(self) -> int:
        return self.shared_tasks or self.workers

    def candidate(self, scheme: str) -> Candidate | None:
        return next((c for c in self.candidates if c.scheme == scheme), None)
