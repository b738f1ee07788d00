"""What a simulation showed: loads over time, as numbers and as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenkeel.charts import Panel, bars, svg
from evenkeel.streaming.monitor import SideLoads
from evenkeel.streaming.spec import INPUTS
from evenkeel.streaming.strategies.base import Loads, RoutingTable
from evenkeel.types import Float64, Int64


@dataclass
class SimulationReport:
    strategy: str
    units: int
    rows: int
    work: list[Float64] = field(default_factory=list)
    """By epoch, of each unit: rows that probed it times rows they probed."""
    stored: list[Float64] = field(default_factory=list)
    """By epoch, of each unit: rows it holds after the epoch's commit."""
    received: list[Float64] = field(default_factory=list)
    """By epoch, of each unit: rows it was sent."""
    li: list[float] = field(default_factory=list)
    """By epoch: FastJoin's LI, the worse of the two sides."""
    versions: list[int] = field(default_factory=list)
    """By epoch: the version of the table that routed it."""
    migrated: list[int] = field(default_factory=list)
    """By epoch: rows that changed their unit, or were copied to one more."""
    optimum: list[float] = field(default_factory=list)
    """By epoch, where asked for: rows in the heaviest unit of the static HyperCube."""
    notes: Sequence[tuple[int, str]] = ()
    """(epoch, what the strategy said)."""
    table: RoutingTable | None = None

    def add(self, loads: Loads, version: int, migrated: int, holders: Mapping[str, Int64], held: Float64) -> None:
        """`holders` are the units that may hold rows of an input."""
        self.work.append(np.array([u.work for u in loads.units]))
        self.stored.append(held)
        self.received.append(np.array([float(sum(u.received.values())) for u in loads.units]))
        self.li.append(max(SideLoads.of(loads, i, len(loads.units)).only(holders[i]).li for i in INPUTS))
        self.versions.append(version)
        self.migrated.append(migrated)

    @property
    def heaviest_over_mean(self) -> Float64:
        return np.array([w.max() / max(w.mean(), 1e-9) for w in self.work])

    @property
    def makespan(self) -> float:
        """The heaviest unit's work, summed over the epochs: what a cluster waits for."""
        return float(sum(w.max() for w in self.work))

    @property
    def moved_share(self) -> float:
        """Rows moved for each row received."""
        return sum(self.migrated) / max(1, self.rows)

    def __str__(self) -> str:
        moves = sum(a != b for a, b in zip(self.versions, self.versions[1:], strict=False))
        skew = self.heaviest_over_mean
        lines = [
            f"{self.strategy}: {self.units:,} units, {self.rows:,} rows in {len(self.work)} epochs",
            f"  LI            {np.median(self.li):.2f} in the middle, {self.li[-1]:.2f} in the last epoch",
            f"  heaviest/mean {np.median(skew):.2f} in the middle, {skew.max():.2f} at worst, {skew[-1]:.2f} at last",
            f"  tables        {moves + 1}, {sum(self.migrated):,} rows moved, {self.moved_share:.1%} of those received",
            "",
            "heaviest / mean load, epoch by epoch",
            bars(skew, height=6),
            "loads of the units in the last epoch",
            bars(self.work[-1], height=4),
        ]
        lines += [f"  epoch {e}: {text}" for e, text in list(self.notes)[:8]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return svg(
            [Panel("heaviest / mean load by epoch", self.heaviest_over_mean, f"{self.strategy}, {self.units} units")]
        ) + svg([Panel("load of each unit, last epoch", self.work[-1], f"LI {self.li[-1]:.2f}")])
