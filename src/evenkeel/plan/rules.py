"""The rules of the optimizer, each a plain function plan -> plan."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from evenkeel.errors import SchemeNotApplicable, TooManyPairs
from evenkeel.local import Bins, KeyAndRegion, KeyInNumber, MergeOnPacked, local_named
from evenkeel.plan.bin_width import choose_bins
from evenkeel.plan.cost import ROWS_A_SECOND, broadcast_cost, could_save, work
from evenkeel.plan.nodes import Candidate, TwoWay
from evenkeel.schemes import Problem, scheme_named
from evenkeel.schemes.ranges import RangeLayout
from evenkeel.stats import JoinStats, SideStats
from evenkeel.types import SIDES, Absent, Side

EVEN = 1.1
"""A join whose heaviest region is predicted below this many means is left to Spark."""
GAIN = 0.9
"""A scheme is worth its overhead when it brings the heaviest region below this part of hashing's."""
MOSTLY_OUTPUT = 64.0
"""Pairs a row from which comparing keys pair by pair costs more than sorting by them (docs/adr/0003)."""
TASK_SECONDS = 2.0
TASK_BYTES = 2**26
"""What regions that share a task may have together: work for two seconds, and what Spark's adaptive execution puts
into one partition by default."""
BUSY = 0.85
"""Which part of the cores' time they have to fill: nine tasks on two cores do, three do not."""
MOST_REGIONS = 2**16
MOST_PAIRS = 3e11
"""Pairs a region that `auto` will check one by one: some hours."""
BY_KEY = ("hash", "heavy_light")
BY_RANGE = ("m_bucket", "equi_weight")
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


def permit(plan: TwoWay) -> TwoWay:
    """Refuse a scheme that cannot run the join; it needs no statistics, so nothing has been read by then."""
    if plan.workers > MOST_REGIONS:
        raise SchemeNotApplicable.too_many_regions(plan.workers, MOST_REGIONS)
    if plan.requested in BY_KEY and not plan.condition.equi and plan.condition.kind != "cross":
        raise SchemeNotApplicable.needs_equality(plan.requested, plan.condition.text)
    if plan.requested in BY_RANGE and not plan.condition.monotone:
        raise SchemeNotApplicable.needs_range(plan.requested, plan.condition.text)
    return plan


def pose(plan: TwoWay) -> TwoWay:
    """State the problem for the schemes: statistics, join type, workers, and the side a broadcast would copy."""
    stats = plan.stats or _nothing_known()
    allowed = NATIVE_BUILD[plan.how] or ("right", "left")
    build: Side = min(allowed, key=lambda s: _size(plan, s))
    problem = Problem(stats, plan.how, plan.workers, bool(plan.condition.equi), build, plan.ranges)
    return replace(plan, problem=problem)


def fit_schemes(plan: TwoWay) -> TwoWay:
    """Fit what was asked for; with `auto` everything that can run the join and whose planning can pay.

    Those that are quick to plan go first. The best of them against what no layout can beat is all that is left to be
    saved, and a second of planning costs what a worker could have done in it (docs/adr/0016).
    """
    assert plan.problem is not None
    if plan.requested != "auto":
        return replace(plan, candidates=(_fitted(plan, plan.requested),))
    plan = replace(plan, problem=replace(plan.problem, thrift=ROWS_A_SECOND))
    assert plan.problem is not None
    names, saved = applicable(plan), np.inf
    found: dict[str, Candidate] = {}
    unfitted: dict[str, str] = {}
    for name in sorted(names, key=lambda n: scheme_named(n).planning(plan.workers)):
        seconds = scheme_named(name).planning(plan.workers)
        if seconds and saved <= ROWS_A_SECOND * seconds:
            unfitted[name] = f"{seconds:.2g} s of planning could save {saved / ROWS_A_SECOND:.2g} s at the most"
            continue
        found[name] = _fitted(plan, name)
        if not found[name].note:
            saved = min(saved, _could_save(plan, found[name]))
    in_order = tuple(found[n] for n in names if n in found)
    return replace(plan, candidates=in_order, unfitted=tuple(unfitted.items()))


def _could_save(plan: TwoWay, beside: Candidate) -> float:
    assert plan.problem is not None and beside.layout.predicted is not None
    everything = beside.cost if beside.scheme == "broadcast" else float(beside.layout.predicted.weights.sum())
    return could_save(plan.problem, beside.cost, everything, plan.facts.cores)


def _fitted(plan: TwoWay, name: str) -> Candidate:
    assert plan.problem is not None
    layout = scheme_named(name).fit(plan.problem)
    assert layout.predicted is not None
    if name == "broadcast":
        cost = broadcast_cost(plan.problem.stats, plan.problem.build, layout.predicted)
        return Candidate(name, layout, cost, _why_not_broadcast(plan))
    same = name == "equi_weight" and not isinstance(layout, RangeLayout)
    cost = float(work(layout.predicted, plan.condition).max(initial=0.0))
    return Candidate(name, layout, cost, "nearly everything matches: the same as one_bucket" if same else "")


def applicable(plan: TwoWay) -> tuple[str, ...]:
    """The schemes that `auto` weighs for a condition."""
    if plan.condition.kind == "cross":
        return ("hash", "broadcast", "heavy_light")
    by_key = ("hash", "broadcast", "heavy_light") if plan.condition.equi else ("broadcast",)
    if plan.ranges is not None:
        return (*by_key, "one_bucket", *BY_RANGE)
    return by_key if plan.condition.equi else (*by_key, "one_bucket")


def choose_scheme(plan: TwoWay) -> TwoWay:
    """Take what was asked for; with `auto` the cheapest, and Spark's own join where nothing is to be gained."""
    if plan.requested != "auto":
        return replace(plan, chosen=plan.candidate(plan.requested), reason="asked for")
    if plan.condition.kind == "cross":
        return _left_to_spark(plan, "every pair matches, and Spark's Cartesian product is even by construction")
    if not plan.condition.equi:
        return _choose_without_equality(plan)
    hashed = plan.candidate("hash")
    assert hashed is not None and hashed.layout.predicted is not None
    skew = hashed.layout.predicted.skew_degree
    usable = [c for c in plan.candidates if c.scheme != "hash" and not c.note]
    best = min(usable, key=lambda c: c.cost, default=hashed)
    if plan.ranges is None or best.cost > GAIN * hashed.cost:
        if plan.workers == 1:
            return _left_to_spark(plan, "one worker has nothing to balance")
        if skew <= EVEN:
            even = f"the keys are even: hashing leaves the heaviest region at {skew:.2f} x the mean"
            return _left_to_spark(plan, even)
    if best.cost > GAIN * hashed.cost:
        return _left_to_spark(plan, f"no scheme brings the heaviest region below {GAIN:.0%} of hashing's")
    reason = f"heaviest region {hashed.cost / max(best.cost, 1e-9):.1f} x lighter than with hashing"
    return replace(plan, chosen=best, reason=reason)


def _choose_without_equality(plan: TwoWay) -> TwoWay:
    """The cheapest by its heaviest region; a condition that narrows nothing must be feasible at all."""
    assert plan.problem is not None
    usable = [c for c in plan.candidates if not c.note]
    best = min(usable, key=lambda c: c.cost)
    if not plan.condition.spans and any(t.equality for t in plan.condition.residual):
        reason = "values that a collation or padding makes equal are for Spark to hash"
        return replace(plan, chosen=best, native=True, reason=reason)
    left, right = (plan.problem.stats.of(s).row_count for s in SIDES)
    if not plan.condition.spans and best.scheme != "broadcast" and left * right / plan.workers > MOST_PAIRS:
        raise TooManyPairs.of(plan.condition.text, left, right, plan.workers)
    others = [c for c in plan.candidates if c is not best and not c.note]
    if not others:
        return replace(plan, chosen=best, reason="any condition can be checked in it")
    next_ = min(others, key=lambda c: c.cost)
    ratio = next_.cost / max(best.cost, 1e-9)
    return replace(plan, chosen=best, reason=f"heaviest region {ratio:.1f} x lighter than with {next_.scheme}")


def choose_local(plan: TwoWay) -> TwoWay:
    """Bins for bands, sorting in Arrow for several inequalities, a merge by key, or every pair."""
    if plan.native or plan.chosen is None or plan.chosen.layout.predicted is None:
        return plan
    condition, load = plan.condition, plan.chosen.layout.predicted
    if plan.chosen.scheme not in (*BY_KEY, "broadcast"):
        if condition.spans and condition.spans[0].binnable:
            assert plan.ranges is not None
            bins = choose_bins(plan.ranges, plan.chosen.layout, plan.how, plan.facts.row_bytes)
            return replace(plan, local=bins)
        if not condition.equi:
            several = len(condition.spans) > 1 and plan.facts.fits_arrow
            return replace(plan, local=local_named("inequalities" if several else "nested_loop"))
    per_row = float(np.sum(load.rows_out)) / max(1.0, float(np.sum(load.rows_in)))
    packing = _packing(plan)
    if packing is not None and (packing.exact or per_row <= MOSTLY_OUTPUT):
        return replace(plan, local=MergeOnPacked(packing))
    return replace(plan, local=local_named("merge_on_key" if per_row > MOSTLY_OUTPUT else "merge_on_hash"))


def _packing(plan: TwoWay) -> KeyInNumber | KeyAndRegion | None:
    """Key and region in one number, where every key is known to fit and nothing else asks for it before the result."""
    assert plan.chosen is not None
    condition, by_type = plan.condition, plan.facts.key_bits
    if plan.how != "inner" or plan.chosen.scheme not in BY_KEY or len(condition.equi) != 1:
        return None
    if condition.residual or condition.equi[0].null_safe:
        return None
    read = [n for s in SIDES if plan.stats is not None and (n := plan.stats.of(s).numbers) is not None]
    ranges = []  # that hold every key, and whether it has to be checked that they do
    if by_type is not None:
        ranges.append((-(2 ** (by_type - 1)), 2 ** (by_type - 1) - 1, False))
    if len(read) == len(SIDES):
        some = [n for n in read if n.least <= n.most]
        ranges.append((min((n.least for n in some), default=0), max((n.most for n in some), default=0), True))
    for ends in ranges:
        if (short := KeyInNumber(plan.workers, *ends)).fits:
            return short
    for least, most, checked in ranges:
        long = KeyAndRegion(plan.workers, checked)
        if long.fits(least, most) and all(long.tells_apart(n.some) for n in read):
            return long
    return None


def share_tasks(plan: TwoWay) -> TwoWay:
    """Let small regions share tasks where Spark may do so by itself and there are fewer cores than regions.

    As many regions in each task: their number divides that of the regions, and a region goes to the task that its
    number leaves as a remainder. A task for every core at the least, and no core idle for long while the last ones run.
    A join that hashes would hold all of them at once, and one in bins copies rows that are not counted here.
    """
    facts, load = plan.facts, plan.chosen.layout.predicted if plan.chosen is not None else None
    if facts.cores is None or not facts.coalesces or load is None or plan.stats is None or not plan.needs_statistics:
        return plan
    if plan.native or plan.chosen is None or plan.chosen.scheme == "broadcast":
        return plan
    if plan.local is None or plan.local.operator != "merge" or isinstance(plan.local, Bins):
        return plan
    size = max(facts.row_bytes.values()) * float(load.rows_in.sum())
    seconds = float(work(load, plan.condition).sum()) / ROWS_A_SECOND
    least = max(facts.cores, seconds / TASK_SECONDS, size / TASK_BYTES)
    fewer = [n for n in range(ceil(least), plan.workers) if plan.workers % n == 0 and _busy(n, facts.cores) >= BUSY]
    return replace(plan, shared_tasks=min(fewer)) if fewer else plan


def _busy(tasks: int, cores: int) -> float:
    """Which part of the cores' time equal tasks fill, until the last has ended."""
    return tasks / (ceil(tasks / cores) * cores)


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
