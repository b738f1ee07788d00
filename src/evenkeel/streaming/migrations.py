"""A migration from the moment a strategy asks for a table to the record that is kept of it.

    asked      by a step after an epoch: target table, reason, the ratio of loads that made it necessary
    staged     by the epochs that follow, a bounded number of bytes each
    in force   with the commit of the last of them; the first epoch under the new table measures what it was good for

All of it is plain JSON in the commits: a restart goes on with the stage as committed, and knows the last records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evenkeel.state.migration import Stage
from evenkeel.streaming.moving import Diff
from evenkeel.streaming.strategies.base import Loads, RoutingTable, Step

KEPT = 64
"""Records that a commit carries."""


@dataclass(frozen=True)
class Record:
    """A migration that is in force, for people."""

    epoch: int
    """The epoch whose commit brought the table into force."""
    asked: int
    """The epoch after which it was asked for."""
    version: int
    """Of the routing table."""
    sources: tuple[int, ...]
    """Units that rows left."""
    targets: tuple[int, ...]
    """Units that rows came to."""
    keys: int | None
    """Keys that are stored elsewhere now; None where that is no matter of keys."""
    rows: int
    size: int
    before: float
    """Heaviest over mean load when it was asked for."""
    after: float | None
    """The same in the first epoch under the new table; None until then."""
    seconds: float
    """By how much it made epochs longer at most: the time of the unit that moved most, summed over epochs."""
    units: int
    reason: str = ""

    def measured(self, version: int, loads: Loads) -> Record:
        """With the loads of an epoch that was routed by table `version`."""
        return replace(self, after=ratio(loads)) if self.after is None and self.version == version else self

    def shown(self) -> dict[str, Any]:
        """As the table of migrations has it."""
        return {
            "epoch": self.epoch, "from": list(self.sources), "to": list(self.targets), "keys": self.keys,
            "rows": self.rows, "bytes": self.size, "ratio_before": self.before, "ratio_after": self.after,
            "ms": round(self.seconds * 1000, 1), "epochs": self.epoch - self.asked, "routing_version": self.version,
            "units": self.units, "reason": self.reason,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Record:
        return cls(**{**doc, "sources": tuple(doc["sources"]), "targets": tuple(doc["targets"])})


@dataclass(frozen=True)
class Migration:
    """One that is on its way."""

    asked: int
    table: Mapping[str, Any]
    """The routing table that is to come into force."""
    keys: int | None
    before: float
    reason: str
    stage: Stage = field(default_factory=Stage)

    @classmethod
    def of(cls, loads: Loads, table: RoutingTable, step: Step) -> Migration:
        assert step.table is not None
        keys = Diff(table, step.table).keys
        count = None if keys is None else len({int(k) for ks in keys.values() for k in ks})
        return cls(loads.epoch, step.table.to_json(), count, ratio(loads), step.reason)

    def staged(self, parts: Sequence[Stage]) -> Migration:
        """With what the units of one epoch did."""
        return replace(self, stage=self.stage.then(Stage().beside(parts)))

    def record(self, epoch: int, table: RoutingTable) -> Record:
        s = self.stage
        return Record(
            epoch, self.asked, table.version, tuple(sorted(s.sources)), tuple(sorted(s.targets)), self.keys, s.rows,
            s.size, self.before, None, s.seconds, table.units, self.reason,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "stage": self.stage.to_json()}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Migration:
        return cls(**{**doc, "stage": Stage.from_json(doc["stage"])})


def ratio(loads: Loads) -> float:
    """Heaviest over mean load of the units: 1 where all do the same, or nothing."""
    work = [u.work for u in loads.units]
    total = sum(work)
    return max(work) * len(work) / total if total else 1.0
