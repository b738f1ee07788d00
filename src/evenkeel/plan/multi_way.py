"""A multi-way join as a frozen value, and the rules that fill it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from evenkeel.conditions import Query
from evenkeel.errors import SchemeNotApplicable
from evenkeel.plan.cost import BUILD_ROW, PROBE_ROW
from evenkeel.plan.join_order import Estimator, JoinOrder
from evenkeel.plan.rules import MOST_REGIONS
from evenkeel.schemes.hypercube import CUBES, CubeLayout, CubeProblem, cube_named
from evenkeel.stats import KeyGroups
from evenkeel.types import CubeName

SAME = 1.03
"""Of layouts whose heaviest regions are as good as equal the one that ships least is taken."""
GAIN = 0.9
"""The pipeline of two-way joins must bring a worker below this part of the best cube's heaviest region."""
PIPELINE = "pipeline"


@dataclass(frozen=True)
class MultiFacts:
    """What is known of the inputs without reading them."""

    row_bytes: tuple[float, ...]
    stable_order: tuple[bool, ...]
    """Whether a retried task would see the rows in the same order again."""
    broadcast_limit: float = 10 * 1024 * 1024


@dataclass(frozen=True)
class Pipeline:
    """The same query as two-way joins, one after the other."""

    order: JoinOrder
    shipped: float
    """Rows that are sent: each input, each result that is joined by another key next, copies to every worker."""
    broadcast: frozenset[int]
    """Relations that are copied to every worker because that is less work."""
    cost: float
    """Rows a worker handles, as the heaviest region of a cube counts them, the work being even."""


@dataclass(frozen=True)
class CubeCandidate:
    scheme: str
    layout: CubeLayout

    @property
    def heaviest(self) -> float:
        return float(self.layout.predicted.rows_in.max())

    @property
    def shipped(self) -> float:
        return float(self.layout.predicted.rows_in.sum())


@dataclass(frozen=True)
class MultiWay:
    query: Query
    workers: int
    requested: CubeName
    facts: MultiFacts
    groups: tuple[KeyGroups, ...]
    seconds: float = 0.0
    """How long the statistics took."""
    candidates: tuple[CubeCandidate, ...] = ()
    pipeline: Pipeline | None = None
    chosen: CubeCandidate | None = None
    """None where the pipeline was chosen."""
    order: JoinOrder | None = None
    reason: str = ""

    @property
    def scheme(self) -> str:
        return PIPELINE if self.chosen is None else self.chosen.scheme

    @property
    def problem(self) -> CubeProblem:
        return CubeProblem(self.query, self.groups, self.workers)


def permit(plan: MultiWay) -> MultiWay:
    if plan.workers > MOST_REGIONS:
        raise SchemeNotApplicable.too_many_regions(plan.workers, MOST_REGIONS)
    return plan


def fit_cubes(plan: MultiWay) -> MultiWay:
    """Fit what was asked for, or with `auto` every cube."""
    names = [c.name for c in CUBES] if plan.requested == "auto" else [plan.requested]
    problem = plan.problem
    found = tuple(CubeCandidate(name, cube_named(name).fit(problem)) for name in names)
    return replace(plan, candidates=found)


def weigh_pipeline(plan: MultiWay) -> MultiWay:
    """What the two-way joins would ship; they too can be balanced, so every worker gets the same."""
    query, workers = plan.query, plan.workers
    order = Estimator(query, plan.groups).order([g.total for g in plan.groups], workers)
    shipped = cost = 0.0
    broadcast = set()
    placed_by: frozenset[int] | None = None
    for k, relation in enumerate(order.relations[1:], start=1):
        before, rows = order.rows[k - 1], plan.groups[relation].total
        joined = frozenset(order.relations[:k])
        by = frozenset(a for a in query.of(relation) if query.attributes[a].relations & joined)
        # Without an equality every row of one meets every row of the other: a grid, as 1-Bucket lays it out.
        sent = 2 * (before * rows * workers) ** 0.5 if not by else rows + (0.0 if by == placed_by else before)
        copying = BUILD_ROW * rows + PROBE_ROW * before / workers
        if rows * plan.facts.row_bytes[relation] <= plan.facts.broadcast_limit and copying < sent / workers:
            broadcast.add(relation)
            cost += copying
            shipped += rows * workers
        else:
            placed_by = by
            cost += sent / workers
            shipped += sent
    return replace(plan, pipeline=Pipeline(order, shipped, frozenset(broadcast), cost))


def choose_cube(plan: MultiWay) -> MultiWay:
    """What was asked for; with `auto` the lightest heaviest region, or the pipeline where that shuffles less."""
    if plan.requested != "auto":
        return replace(plan, chosen=plan.candidates[0], reason="asked for")
    assert plan.pipeline is not None
    least = min(c.heaviest for c in plan.candidates)
    best = min((c for c in plan.candidates if c.heaviest <= SAME * least), key=lambda c: c.shipped)
    if plan.pipeline.cost < GAIN * best.heaviest:
        ratio = best.heaviest / max(plan.pipeline.cost, 1e-9)
        return replace(plan, reason=f"the two-way joins give a worker {ratio:.1f} x fewer rows than the best cube")
    others = [c for c in plan.candidates if c is not best]
    next_ = min(others, key=lambda c: c.heaviest)
    ratio = next_.heaviest / max(best.heaviest, 1e-9)
    if ratio > SAME:
        reason = f"heaviest region {ratio:.1f} x lighter than with {next_.scheme}"
    else:
        reason = f"as even as {next_.scheme}, and it ships no more"
    versus = plan.pipeline.cost / max(best.heaviest, 1e-9)
    if versus > SAME:
        reason += f", {versus:.1f} x fewer rows a worker than with two-way joins"
    return replace(plan, chosen=best, reason=reason)


def order_joins(plan: MultiWay) -> MultiWay:
    """The order inside a cell, where copies of rows count; or that of the pipeline."""
    assert plan.pipeline is not None
    if plan.chosen is None:
        return replace(plan, order=plan.pipeline.order)
    arriving = plan.chosen.layout.shipped.tolist()
    return replace(plan, order=Estimator(plan.query, plan.groups).order(arriving, plan.workers))


def check(plan: MultiWay) -> MultiWay:
    """A plan that runs has an order of all relations, and a layout for as many regions as were asked for."""
    assert plan.order is not None and sorted(plan.order.relations) == list(plan.query.relations)
    if plan.chosen is not None:
        layout = plan.chosen.layout
        assert layout.workers == plan.workers, "the layout is for another number of regions"
        numbers = np.concatenate([b.cells for b in layout.blocks])
        assert len(np.unique(numbers)) == len(numbers), "two cells have one number"
    return plan


MULTI_RULES: tuple[Callable[[MultiWay], MultiWay], ...] = (
    permit,  # first, because it needs nothing but the request
    fit_cubes,  # before choose_cube, because a choice compares predictions
    weigh_pipeline,  # before choose_cube, because it is one of the choices
    choose_cube,  # before order_joins, because a cell streams the relation of which most copies arrive
    order_joins,
    check,  # last and changes nothing: refuses a plan that could not be run
)


def optimize_multi(plan: MultiWay) -> MultiWay:
    return reduce(lambda p, rule: rule(p), MULTI_RULES, plan)
