"""Hybrid-Hypercube: hash where an attribute is free of skew, spread row by row where a hot value forbids it.

    start with every attribute hashed; while it pays, rename the pair (relation, attribute) that helps most
    start again from everything spread; of all cubes on the way take the one with the lightest heaviest cell

Skew is judged by the load: the same cube is fitted both ways with the frequencies of the top values, so few distinct
values count as skew too. Hash- and Random-Hypercube are among the cubes, so the result is predicted no worse.
Cost: a few dozen fits of shares.
Source: Squall thesis, sections 5.1.5 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import Cube, CubeFitter, Renamed
from evenkeel.schemes.hypercube.layout import CubeLayout
from evenkeel.schemes.hypercube.single import attributes_of, one_cube
from evenkeel.stats import KeyGroups

MOST_SKEWED = 8
"""Pairs that are tried for renaming, those with most rows of one value."""
GAIN = 0.99
"""A renaming must bring the heaviest cell below this part of what it was."""
NEAR = 1.25
"""Cubes up to this many times the best one's load are compared cell by cell."""


class HybridCube:
    name = "hybrid"
    summary = "hashed where even, spread where a hot value or an inequality forbids it"

    def fit(self, problem: CubeProblem) -> CubeLayout:
        fitter = CubeFitter(problem.groups, attributes_of(problem), problem.workers)
        return one_cube(problem, best_cube(fitter, problem.groups, problem.workers))


def best_cube(fitter: CubeFitter, groups: Sequence[KeyGroups], workers: int) -> Cube:
    """The cube whose heaviest cell is lightest, of those that a greedy search from both ends meets."""
    met: dict[tuple[Renamed, frozenset[int]], Cube] = {}

    def cube(renamed: Renamed, spread: frozenset[int] = frozenset()) -> Cube:
        key = (renamed, spread | fitter.bare)
        if key not in met:
            met[key] = fitter.fit(*key, workers)
        return met[key]

    skewed = fitter.skewed()[:MOST_SKEWED]
    everything = frozenset(range(len(groups)))
    all_pairs = frozenset((i, a) for i, mine in enumerate(fitter.attributes) for a in mine)
    cube(all_pairs, everything)
    if skewed:
        _descend(cube, frozenset(), skewed)
    else:
        cube(frozenset())
    least = min(c.load for c in met.values())
    near = [c for c in met.values() if c.load <= NEAR * least]
    if len(near) == 1:
        return near[0]
    return min(near, key=lambda c: (round(c.heaviest(groups), 6), c.shipped))


def _descend(cube: Callable[[Renamed], Cube], start: Renamed, skewed: list[tuple[int, int]]) -> None:
    """Rename one pair, or an attribute everywhere, as long as that lightens the heaviest cell."""
    renamed, load = start, cube(start).load
    by_attribute = [frozenset(p for p in skewed if p[1] == a) for a in sorted({a for _, a in skewed})]
    steps = [frozenset({p}) for p in skewed] + [s for s in by_attribute if len(s) > 1]
    while True:
        options = [renamed | s for s in steps if not s <= renamed]
        if not options:
            return
        best = min(options, key=lambda r: cube(r).load)
        if cube(best).load > GAIN * load:
            return
        renamed, load = best, cube(best).load
