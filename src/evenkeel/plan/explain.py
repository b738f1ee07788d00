"""`explain()` teaches: what the join is, what is known, what was considered, what was chosen and why."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenkeel import charts
from evenkeel.local import Bins
from evenkeel.plan.nodes import TwoWay
from evenkeel.report import weight
from evenkeel.schemes.heavy_light import HeavyLightLayout
from evenkeel.schemes.one_bucket import OneBucketLayout
from evenkeel.stats import JoinStats
from evenkeel.types import SIDES, Absent, Side

HOT = 0.1
"""A key is worth naming when it is this part of a region's work."""
NAMED = 5
AQE_THRESHOLD = 256 * 2**20
AQE_FACTOR = 5.0
AQE_SPLITS: dict[str, tuple[Side, ...]] = {
    "inner": ("left", "right"),
    "cross": ("left", "right"),
    "left": ("left",),
    "left_semi": ("left",),
    "left_anti": ("left",),
    "right": ("right",),
    "full": (),
}
"""Which sides Spark's OptimizeSkewedJoin splits for which join type."""


def explain(plan: TwoWay) -> str:
    parts = [_condition(plan), _statistics(plan), _candidates(plan), _choice(plan), _aqe(plan)]
    return "\n".join(p for p in parts if p)


def _condition(plan: TwoWay) -> str:
    lines = [f"{plan.how} join on {plan.condition.text}  [{plan.condition.kind}, {plan.workers} workers]"]
    for theta in plan.condition.residual:
        lines.append(f"  checked where pairs meet: {theta.text}")
    for span in plan.condition.spans[:1] if plan.ranges is not None else ():
        low, high = ("any" if abs(b) == float("inf") else f"{b:g}" for b in (span.lo, span.hi))
        lines.append(f"  monotone: left - right is between {low} and {high}")
    return "\n".join(lines)


def _statistics(plan: TwoWay) -> str:
    if plan.stats is None:
        return "statistics: none were needed"
    read = {s: plan.stats.of(s).fraction for s in SIDES}
    how_read = ", ".join(f"{f:.0%} of the {s} rows" for s, f in read.items() if f < 1) or "all rows"
    lines = [f"statistics ({how_read} read, keys only, {plan.stats.seconds:.2f} s; ~ marks an estimate)"]
    for side in SIDES:
        s = plan.stats.of(side)
        known = "" if isinstance(s.distinct, Absent) else f", {s.distinct} keys"
        lines.append(f"  {side:5s} {s.rows} rows{known}, {s.null_rows} NULL keys")
    if plan.ranges is not None:
        a_row = plan.ranges.pair_count / max(1.0, plan.ranges.input_rows)
        lines.append(f"  pairs within the range: {plan.ranges.pairs}, {a_row:.2f} a row")
    for key in hot_keys(plan.stats, plan.workers):
        share = f", {key.share:.1%} of the pairs" if key.share is not None else ""
        lines.append(f"  hot: {plan.stats.label(key.hash)}: ~{key.left:,.0f} x ~{key.right:,.0f} rows{share}")
    return "\n".join(lines)


class HotKey(NamedTuple):
    hash: int
    left: float
    right: float
    share: float | None
    """Of the pairs; None where there are none."""


def hot_keys(stats: JoinStats, workers: int) -> list[HotKey]:
    """The keys that are worth naming, heaviest first."""
    keys, left, right = stats.known_keys()
    pairs, rows = left * right, left + right
    total = float(pairs.sum()) + stats.tail(left, right)[2]
    work = np.asarray(weight(rows, pairs))
    hot = work > HOT * weight(stats.input_rows, total) / workers
    return [
        HotKey(int(keys[i]), float(left[i]), float(right[i]), float(pairs[i]) / total if total else None)
        for i in np.argsort(-work, kind="stable")[:NAMED]
        if hot[i]
    ]


def _candidates(plan: TwoWay) -> str:
    if not plan.candidates:
        return ""
    head = f"{'heaviest / mean':>17s} {'replication':>13s} {'cost':>20s}  (heaviest region, in rows)"
    lines = [f"schemes considered  {head}"]
    for c in plan.candidates:
        load = c.layout.predicted
        if load is None:
            continue
        taken = "hash" if plan.native else plan.chosen.scheme if plan.chosen is not None else None
        mark = "->" if c.scheme == taken else "  "
        note = f"  ({c.note})" if c.note else ""
        lines.append(f"{mark} {c.scheme:16s} {load.skew_degree:17.2f} {load.replication:13.2f} {c.cost:20,.0f}{note}")
    lines += [f"   {scheme:16s} not fitted: {why}" for scheme, why in plan.unfitted]
    return "\n".join(lines)


def _choice(plan: TwoWay) -> str:
    if plan.native:
        return f"choice: left to Spark untouched, because {plan.reason}"
    assert plan.chosen is not None and plan.local is not None
    lines = [f"choice: {plan.chosen.scheme} ({plan.reason})"]
    layout = plan.chosen.layout
    if isinstance(layout, HeavyLightLayout):
        split = [g for g in layout.grids if g.cells > 1]
        shapes = ", ".join(f"{g.a} x {g.b}" for g in sorted(split, key=lambda g: -g.cells)[:5])
        lines.append(
            f"  {len(split):,} hot keys in grids{' (' + shapes + ')' if shapes else ''}, "
            f"{len(layout.grids) - len(split):,} more keys packed longest first, the tail hashed"
        )
        for side in SIDES:
            spread = "their position" if plan.facts.stable_order[side] else "a hash of their content"
            lines.append(f"  rows of a hot {side} key are spread by {spread}")
    if isinstance(layout, OneBucketLayout):
        lines.append(f"  stripes of {', '.join(map(str, sorted(set(layout.stripes.tolist()))))} regions")
    if plan.chosen.scheme != "broadcast":
        lines.append(f"  local join: {plan.local.name} ({plan.local.summary})")
    if plan.shared_tasks is not None:
        a_task, cores = plan.workers // plan.shared_tasks, plan.facts.cores
        lines.append(f"  {a_task} regions share a task: they are small, and this session runs {cores} tasks at once")
    if isinstance(plan.local, Bins):
        low, high = min(plan.local.widths), max(plan.local.widths)
        wide = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}, by region"
        lines.append(f"  bins: {wide} wide; rows of the {plan.local.spread} are copied to the bins they may match")
        if plan.local.before:
            lines.append(f"  before the shuffle ({sum(plan.local.extra):,.0f} copies): pairs outnumber rows by far")
    if layout.predicted is not None and plan.stats is not None:
        lines.append("  predicted load per region:")
        lines.append(charts.bars(layout.predicted.weights, height=2, width=80))
    return "\n".join(lines)


def _aqe(plan: TwoWay) -> str:
    """What Spark's adaptive execution would have done about the same skew."""
    hashed = plan.candidate("hash")
    if plan.stats is None or hashed is None or hashed.layout.predicted is None:
        return ""
    if hashed.layout.predicted.skew_degree <= 1.5:
        return "Spark's AQE: nothing to split"
    splits = AQE_SPLITS[plan.how]
    if not splits:
        return f"Spark's AQE would not split it: it never splits a {plan.how} join"
    keys, left, right = plan.stats.known_keys()
    counts = {"left": left, "right": right}
    reasons = []
    for side in splits:
        stats, width = plan.stats.of(side), plan.facts.row_bytes[side]
        region = np.full(plan.workers, stats.tail_rows / plan.workers)
        np.add.at(region, np.mod(keys, plan.workers), counts[side])
        largest, median = float(region.max()) * width, float(np.median(region)) * width
        if largest > max(AQE_THRESHOLD, AQE_FACTOR * median):
            return (
                f"Spark's AQE might split the {side} side: its largest partition has about {largest / 2**20:,.0f} MB; "
                "it would follow map outputs, not keys"
            )
        reasons.append(f"{side} {largest / 2**20:,.1f} MB")
    only = "" if len(splits) == 2 else f"of a {plan.how} join it splits only the {splits[0]} side, and "
    return (
        f"Spark's AQE would not split it: {only}it looks at bytes, and the largest partition "
        f"({', '.join(reasons)}) is below its threshold of 256 MB and 5 x the median"
    )
