"""The optimizer: a tuple of functions plan -> plan, and a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from evenkeel.plan.nodes import TwoWay
from evenkeel.plan.rules import check, choose_local, choose_scheme, fit_schemes, permit, pose, share_tasks

Rule = Callable[[TwoWay], TwoWay]

RULES: tuple[Rule, ...] = (
    permit,  # first, because it needs nothing but the request
    pose,  # before fit_schemes, because schemes are fitted to the problem it states
    fit_schemes,  # before choose_scheme, because a choice compares predictions
    choose_scheme,  # before choose_local, because the layout decides how much of a region is output
    choose_local,  # before share_tasks, because what holds a side in memory shares nothing
    share_tasks,
    check,  # last and changes nothing: refuses a plan that could not be run
)


def optimize(plan: TwoWay) -> TwoWay:
    return reduce(lambda p, rule: rule(p), RULES, plan)
