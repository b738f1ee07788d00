"""The rules of the optimizer, each a plain function plan -> plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenkeel.errors import SchemeNotApplicable
from evenkeel.local import local_named
from evenkeel.plan.cost import broadcast_cost, heaviest
from evenkeel.plan.nodes import Candidate, TwoWay
from evenkeel.schemes import SCHEMES, Problem, scheme_named
from evenkeel.stats import JoinStats, SideStats
from evenkeel.types import Absent, Side

EVEN = 1.1
"""A join whose heaviest region is predicted below this many means is left to Spark."""
GAIN = 0.9
"""A scheme is worth its overhead when it brings the heaviest region below this part of hashing's."""
MOSTLY_OUTPUT = 64.0
"""Pairs a row from which comparing keys pair by pair costs more than sorting by them (docs/adr/0003)."""
MOST_REGIONS = 2**16
NATIVE_BUILD: dict[str, tuple[Side, ...]] = {
    "inner": ("right", "left"),
    "cross": ("right", "left"),
    "left": ("right",),
    "left_semi": ("right",),
    "left_anti": ("right",),
    "right": ("left",),
    "full": (),
}
"""Which side Spark's broadcast join can copy for which join type."""


def pose(plan: TwoWay) -> TwoWay:
    """State the problem for the schemes: statistics, join type, workers, and the side a broadcast would copy."""
    stats = plan.stats or _nothing_known()
    allowed = NATIVE_BUILD[plan.how] or ("right", "left")
    build: Side = min(allowed, key=lambda s: _size(plan, s))
    problem = Problem(stats, plan.how, plan.workers, bool(plan.condition.equi), build)
    return replace(plan, problem=problem)


def fit_schemes(plan: TwoWay) -> TwoWay:
    """Fit what was asked for, or with `auto` everything that can run the join."""
    assert plan.problem is not None
    wanted = [s.name for s in SCHEMES] if plan.requested == "auto" else [plan.requested]
    if not plan.condition.equi and plan.condition.kind != "cross":
        wanted = [w for w in wanted if w == "broadcast"] if plan.requested != "auto" else []
        if plan.requested not in ("auto", "broadcast"):
            raise SchemeNotApplicable.needs_equality(plan.requested, plan.condition.text)
    if plan.workers > MOST_REGIONS:
        raise SchemeNotApplicable.too_many_regions(plan.workers, MOST_REGIONS)
    found = []
    for name in wanted:
        layout = scheme_named(name).fit(plan.problem)
        assert layout.predicted is not None
        cost, note = heaviest(layout.predicted), ""
        if name == "broadcast":
            cost = broadcast_cost(plan.problem.stats, plan.problem.build, layout.predicted)
            note = _why_not_broadcast(plan)
        found.append(Candidate(name, layout, cost, note))
    return replace(plan, candidates=tuple(found))


def choose_scheme(plan: TwoWay) -> TwoWay:
    """Take what was asked for; with `auto` the cheapest, and Spark's own join where nothing is to be gained."""
    if plan.requested != "auto":
        return replace(plan, chosen=plan.candidate(plan.requested), reason="asked for")
    if plan.condition.kind == "cross":
        return _left_to_spark(plan, "every pair matches, and Spark's Cartesian product is even by construction")
    if not plan.condition.equi:
        return _left_to_spark(plan, "the condition has no equality between the inputs to route by")
    hashed = plan.candidate("hash")
    assert hashed is not None and hashed.layout.predicted is not None
    skew = hashed.layout.predicted.skew_degree
    if plan.workers == 1:
        return _left_to_spark(plan, "one worker has nothing to balance")
    if skew <= EVEN:
        return _left_to_spark(plan, f"the keys are even: hashing leaves the heaviest region at {skew:.2f} x the mean")
    usable = [c for c in plan.candidates if c.scheme != "hash" and not c.note]
    best = min(usable, key=lambda c: c.cost, default=hashed)
    if best.cost > GAIN * hashed.cost:
        return _left_to_spark(plan, f"no scheme brings the heaviest region below {GAIN:.0%} of hashing's")
    reason = f"heaviest region {hashed.cost / max(best.cost, 1e-9):.1f} x lighter than with hashing"
    return replace(plan, chosen=best, reason=reason)


def choose_local(plan: TwoWay) -> TwoWay:
    """Merge on the hash while regions are mostly input, on the key once they are mostly output."""
    if plan.native or plan.chosen is None or plan.chosen.layout.predicted is None:
        return plan
    load = plan.chosen.layout.predicted
    per_row = float(np.sum(load.rows_out)) / max(1.0, float(np.sum(load.rows_in)))
    return replace(plan, local=local_named("merge_on_key" if per_row > MOSTLY_OUTPUT else "merge_on_hash"))


def check(plan: TwoWay) -> TwoWay:
    """A plan that runs has a layout for as many regions as were asked for, and a local join; or it is Spark's."""
    if not plan.native:
        assert plan.chosen is not None, "a plan that is not left to Spark needs a scheme"
        assert plan.chosen.layout.workers == plan.workers, "the layout is for another number of regions"
        assert plan.local is not None, "a routed plan needs a local join"
    return plan


def _size(plan: TwoWay, side: Side) -> float:
    """About how many bytes an input has; one of unknown size counts as large."""
    if plan.stats is not None:
        return plan.stats.of(side).row_count * plan.facts.row_bytes[side]
    known = plan.facts.size_bytes[side]
    return float("inf") if known is None else known


def _left_to_spark(plan: TwoWay, reason: str) -> TwoWay:
    return replace(plan, chosen=plan.candidate("hash"), native=True, reason=reason)


def _why_not_broadcast(plan: TwoWay) -> str:
    """Why Spark could not or should not broadcast here; empty when it can."""
    assert plan.problem is not None
    build = plan.problem.build
    if not NATIVE_BUILD[plan.how]:
        return f"Spark broadcasts neither side of a {plan.how} join"
    size = _size(plan, build)
    if plan.facts.broadcast_limit < 0:
        return "broadcasting is switched off in this session"
    if size > plan.facts.broadcast_limit:
        return f"the {build} side is about {size / 2**20:,.0f} MB, above Spark's broadcast threshold"
    return ""


def _nothing_known() -> JoinStats:
    none = np.empty(0, dtype=np.int64)
    side = SideStats(Absent(), Absent(), Absent(), none, none.astype(float))
    return JoinStats(side, side)
