"""Layouts of a single cube."""

from __future__ import annotations

import numpy as np

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import Cube
from evenkeel.schemes.hypercube.layout import CubeLayout, PatternRows, lay_out
from evenkeel.types import Int64


def no_heavy(problem: CubeProblem) -> tuple[Int64, ...]:
    return tuple(np.empty(0, dtype=np.int64) for _ in problem.query.attributes)


def attributes_of(problem: CubeProblem) -> tuple[tuple[int, ...], ...]:
    return tuple(problem.query.of(i) for i in problem.query.relations)


def one_cube(problem: CubeProblem, cube: Cube) -> CubeLayout:
    light = tuple(0 for _ in problem.query.attributes)
    shapes = [(light, cube.dimensions)]
    return lay_out(problem.workers, attributes_of(problem), shapes, PatternRows(problem.groups, no_heavy(problem)))
