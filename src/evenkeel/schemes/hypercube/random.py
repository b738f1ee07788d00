"""Random-Hypercube: every relation is a dimension, and its rows are spread along it whatever they hold.

Cost: sum_i |R_i| / p_i a cell; no value can be too hot and any condition can be checked, but every row is copied
along the dimensions of all other relations.
Source: Zhang, Chen and Wang; Squall thesis, sections 5.1.2 and 5.2.
"""

from __future__ import annotations

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import CubeFitter
from evenkeel.schemes.hypercube.layout import CubeLayout
from evenkeel.schemes.hypercube.single import one_cube


class RandomCube:
    name = "random"
    summary = "every relation a dimension, rows spread"

    def fit(self, problem: CubeProblem) -> CubeLayout:
        none: list[tuple[int, ...]] = [() for _ in problem.groups]
        fitter = CubeFitter(problem.groups, none, problem.workers)
        spread = frozenset(problem.query.relations)
        return one_cube(problem, fitter.fit(frozenset(), spread, problem.workers))
