"""Hybrid-Hypercube: hash where an attribute is free of skew, spread row by row where a hot value forbids it.

    start with every attribute hashed; while it pays, rename the pair (relation, attribute) that helps most
    of the cubes on the way, of Hash-Hypercube's and Random-Hypercube's, take the one with the lightest heaviest cell

Skew is judged by the load: the same cube is fitted both ways with the frequencies of the top values, so few distinct
values count as skew too. As Hash- and Random-Hypercube are among the cubes, the result is predicted no worse.
Cost: some dozen quick fits to find the way, a few exact ones at its end.
Source: Squall thesis, sections 5.1.5 and 5.2.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import Cube, CubeFitter, Renamed
from evenkeel.schemes.hypercube.layout import ROW, CubeLayout
from evenkeel.schemes.hypercube.single import attributes_of, one_cube

MOST_SKEWED = 6
"""Pairs that are tried for renaming, those with most rows of one value."""
GAIN = 0.99
"""A renaming must bring the heaviest cell below this part of what it was."""
SAME = 1.002
"""Heaviest cells that differ by no more are equal: then hashing comes before spreading, then what ships less."""


class HybridCube:
    name = "hybrid"
    summary = "hashed where even, spread where a hot value or an inequality forbids it"

    def fit(self, problem: CubeProblem) -> CubeLayout:
        return one_cube(problem, best_cube(problem))


@lru_cache(maxsize=8)
def best_cube(problem: CubeProblem) -> Cube:
    """The cube whose heaviest cell is lightest, of those that the search meets."""
    groups, workers = problem.groups, problem.workers
    fitter = CubeFitter(groups, attributes_of(problem), workers)
    everything = frozenset(range(len(groups)))
    all_pairs = frozenset((i, a) for i, mine in enumerate(fitter.attributes) for a in mine)
    cubes = [
        fitter.fit(frozenset(), fitter.bare, workers),
        fitter.fit(frozenset(), fitter.bare, workers, as_if_even=True),
        fitter.fit(all_pairs, everything, workers),
        *(fitter.fit(renamed, fitter.bare, workers) for renamed in _renamings(fitter, workers)),
    ]
    heaviest = np.array([c.heaviest(groups) for c in cubes])
    near = [c for c, h in zip(cubes, heaviest, strict=True) if h <= SAME * heaviest.min()]
    return min(near, key=lambda c: (sum(d.source == ROW for d in c.dimensions), c.shipped))


def _renamings(fitter: CubeFitter, workers: int) -> list[Renamed]:
    """The last steps of a descent: rename a pair, or an attribute everywhere, while that lightens the heaviest cell."""
    skewed = fitter.skewed()[:MOST_SKEWED]
    by_attribute = [frozenset(p for p in skewed if p[1] == a) for a in sorted({a for _, a in skewed})]
    steps = [frozenset({p}) for p in skewed] + [s for s in by_attribute if len(s) > 1]
    loads: dict[Renamed, float] = {}

    def load(renamed: Renamed) -> float:
        if renamed not in loads:
            loads[renamed] = fitter.ladder(renamed, fitter.bare, workers)[-1].load
        return loads[renamed]

    found: list[Renamed] = []
    renamed: Renamed = frozenset()
    while True:
        options = [renamed | s for s in steps if not s <= renamed]
        best = min(options, key=load, default=renamed)
        if load(best) >= GAIN * load(renamed):
            return found[-2:]
        renamed = best
        found.append(renamed)
