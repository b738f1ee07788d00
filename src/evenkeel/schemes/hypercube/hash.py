"""Hash-Hypercube: every join attribute is a dimension, and rows are hashed on all attributes they have.

Cost: sum_i |R_i| / prod_{a in R_i} p_a a cell when no value is hot; shares are chosen as if none were.
Source: Afrati and Ullman's HyperCube with whole-numbered shares; Squall thesis, sections 5.1.2 and 5.2.
"""

from __future__ import annotations

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import CubeFitter
from evenkeel.schemes.hypercube.layout import CubeLayout
from evenkeel.schemes.hypercube.single import attributes_of, one_cube


class HashCube:
    name = "hash"
    summary = "every attribute a dimension, rows hashed"

    def fit(self, problem: CubeProblem) -> CubeLayout:
        fitter = CubeFitter(problem.groups, attributes_of(problem), problem.workers)
        return one_cube(problem, fitter.fit(frozenset(), fitter.bare, problem.workers, as_if_even=True))
