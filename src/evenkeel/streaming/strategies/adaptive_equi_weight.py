"""Adaptive equi-weight: the join matrix by position, cut anew into regions of equal work as samples grow.

    every epoch       rows below a falling rate join the reservoir
    decision point    the held rows have doubled, or loads have been uneven for some epochs: cut the samples again,
                      by the batch scheme's own planner; taken if the heaviest unit gets lighter by a fifth
    new regions       heaviest first, each to the unit that already holds most of its rows (algorithm 3)

Invariant: a row is told from every other by its content hash, and a unit holds it once: migration is the difference
of two placements of the same row.
Cost: planning on two samples of some thousand rows. There is no guarantee: content-sensitive cuts follow the past.
Source: Squall, section 6.3; `schemes/equi_weight.py` plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenkeel.report import weight
from evenkeel.schemes.base import Problem
from evenkeel.schemes.equi_weight import EquiWeight
from evenkeel.schemes.ranges import RangeLayout
from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
from evenkeel.streaming.strategies.adaptive_one_bucket import AdaptiveOneBucket, Matrices
from evenkeel.streaming.strategies.base import Loads, RoutingTable, Step, Watch
from evenkeel.streaming.strategies.range_table import Band, RangeTable
from evenkeel.streaming.strategies.reservoir import Reservoir
from evenkeel.types import Float64, Inexact, Int64

LEAST = 128
"""Sampled rows of an input below which nothing is cut."""
UNEVEN, PATIENCE = 1.5, 2
"""Heaviest / mean of rows received that counts as uneven, and for how many epochs it has to."""
GAIN = 0.8
PAIRS = 20_000


class AdaptiveEquiWeight:
    name = "adaptive_equi_weight"
    summary = "ranges of positions in regions of equal work, cut anew as the streams grow"
    needs_equality = False
    together = False
    copies = True
    needs_rows = True
    needs_band = True
    options: tuple[str, ...] = ()

    def start(self, inputs: Sequence[str], units: int, options: Mapping[str, float]) -> RoutingTable:
        left, right = inputs
        matrix = AdaptiveOneBucket().start(inputs, units, {})
        assert isinstance(matrix, Matrices)
        band = Band(float(options.get("lo", 0.0)), float(options.get("hi", 0.0)), float(options.get("slack", 0.0)))
        return RangeTable(units, (left, right), band, matrix, {}, {})

    def from_json(self, doc: Mapping[str, Any]) -> RoutingTable:
        return RangeTable.from_json(doc)

    def watch(self, table: RoutingTable, memory: Mapping[str, Any]) -> Watch:
        return Watch(rate=float(memory["sample"]["rate"]) if "sample" in memory else 1.0)

    def adapt(self, table: RoutingTable, loads: Loads, memory: Mapping[str, Any]) -> Step:
        assert isinstance(table, RangeTable)
        before = Reservoir.from_json(memory["sample"]) if "sample" in memory else Reservoir.empty(table.inputs)
        seen = {i: memory.get("seen", {}).get(i, 0) for i in table.inputs}
        fresh = {i: _sampled(loads, i) for i in table.inputs}
        sample = before.with_rows(fresh)
        received = np.array([float(sum(u.received.values())) for u in loads.units])
        uneven = int(memory.get("uneven", 0)) + 1 if received.max() > UNEVEN * max(1.0, received.mean()) else 0
        now = {i: seen[i] + len(fresh[i][0]) / max(before.rate, 1e-12) for i in table.inputs}
        kept: dict[str, Any] = {"seen": now, "uneven": uneven, "planned": memory.get("planned", 0.0)}
        total = sum(now.values())
        due = total >= 2 * kept["planned"] or (uneven >= PATIENCE and total >= 1.25 * kept["planned"])
        enough = all(len(p) >= LEAST for p in sample.positions.values())
        step: RangeTable | None = None
        if due and enough and table.units > 1:
            kept["planned"] = total
            step = plan(table, sample)
        kept["sample"] = sample.to_json()
        return Step(
            kept, step, f"cut anew by {sum(map(len, sample.positions.values())):,} sampled rows" if step else ""
        )


def _sampled(loads: Loads, input: str) -> tuple[Float64, Int64]:
    rows = [r for u in loads.units for r in u.sample.get(input, ()) if r[0] == r[0]]
    return np.array([x for x, _ in rows], dtype=np.float64), np.array([h for _, h in rows], dtype=np.int64)


def plan(table: RangeTable, sample: Reservoir) -> RangeTable | None:
    """The table that the samples ask for, if it is worth it."""
    axes = []
    for i in table.inputs:
        rows = Inexact(len(sample.positions[i]) / sample.rate)
        axes.append(Axis.of(None, sample.positions[i], rows, Inexact(0.0), sample.rate))
    stats = RangeStats(axes[0], axes[1], table.band.lo, table.band.hi, table.band.slack)
    none = np.empty(0, dtype=np.int64)
    sides = [SideStats(a.rows, Inexact(0.0), Inexact(float(len(a))), none, np.empty(0)) for a in axes]
    layout = EquiWeight().fit(Problem(JoinStats(sides[0], sides[1]), "inner", table.units, False, "right", stats))
    if not isinstance(layout, RangeLayout):
        return None
    new = table.with_layout(layout, assign(table, layout, sample))
    return new if heaviest(new, sample, stats) < GAIN * heaviest(table, sample, stats) else None


def assign(table: RangeTable, layout: RangeLayout, sample: Reservoir) -> dict[int, int]:
    """Of each region its unit: the free one that holds most of the region's sampled rows."""
    plain = table.with_layout(layout, {r: r for r in range(table.units)})
    overlap = np.zeros((table.units, table.units))
    for i in table.inputs:
        hashes, positions = sample.hashes[i], sample.positions[i]
        old, new = (t.place(i, hashes, hashes, positions) for t in (table, plain))
        held = np.zeros((len(hashes), table.units), dtype=bool)
        held[old.row[old.store], old.unit[old.store]] = True
        np.add.at(overlap, new.unit, held[new.row])
    out: dict[int, int] = {}
    for region in range(table.units):  # the planner numbers the heaviest first
        unit = int(np.argmax(overlap[region]))
        out[region] = unit
        overlap[:, unit] = -1.0
    return out


def heaviest(table: RangeTable, sample: Reservoir, stats: RangeStats) -> float:
    """The weight of the heaviest unit under a table, judged by the samples."""
    rows_in, out = np.zeros(table.units), np.zeros(table.units)
    pairs = stats.sample_pairs(PAIRS)
    met = []
    for i, axis, at in zip(table.inputs, (stats.left, stats.right), pairs, strict=True):
        hashes = sample.hashes[i]
        placed = table.place(i, hashes, hashes, sample.positions[i])
        rows_in += np.bincount(placed.unit, minlength=table.units) / sample.rate
        order = np.argsort(sample.positions[i], kind="stable")
        chosen = hashes[order][at]
        placed = table.place(i, chosen, chosen, axis.x[at])
        met.append((placed.row * table.units + placed.unit)[placed.store if i == table.inputs[0] else placed.probe])
    common = np.intersect1d(met[0], met[1]) % table.units
    if len(pairs[0]):
        out += np.bincount(common, minlength=table.units) * (stats.pair_count / len(pairs[0]))
    return float(np.max(weight(rows_in, out)))
