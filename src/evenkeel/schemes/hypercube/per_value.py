"""Per-value hypercube: a heavy value has a block of cells of its own, the rest of its attribute stays hashed.

    a pattern says for each attribute which of its heavy values it has, or that it is light
    for each pattern:  where a is heavy it is one value and divides nothing, so the relations that hold it
                       are spread row by row; where it is light it is hashed, and nothing in it is hot
    a ceiling for the cells: every block gets the fewest cells that keep each below it
    cells are packed into regions, heaviest first; the ceiling and the heavy values that pack best are kept

A row goes to the blocks whose pattern agrees with its own values: copies are made only for heavy values of attributes
it does not have. So a hot value costs what it weighs, and no relation is copied because one value of another is hot.
No heavy values at all gives the Hybrid-Hypercube, which is among the candidates.
Cost: a ladder of cubes for each block that is worth one, for each set of heavy values that is tried.
Source: goes beyond the Squall thesis, which names it as future work (section 5.2 treats an attribute as a whole); the
residual queries are those of Beame, Koutris and Suciu, "Skew in parallel query processing".
"""

from __future__ import annotations

import heapq
from itertools import product

import numpy as np

from evenkeel.schemes.hypercube.base import CubeProblem
from evenkeel.schemes.hypercube.cubes import Cube, CubeFitter
from evenkeel.schemes.hypercube.hybrid import best_cube
from evenkeel.schemes.hypercube.layout import CubeLayout, Dimension, PatternRows, lay_out
from evenkeel.schemes.hypercube.single import attributes_of, one_cube
from evenkeel.stats import KeyGroups
from evenkeel.types import Float64, Int64

MOST_PATTERNS = 64
WORTH_A_BLOCK = 0.25
"""A value is heavy when it has this part of the rows of an even region."""
STEPS = (1, 2, 4, 8, 16, 32, 64)
"""How many of the heaviest values are tried."""
CEILINGS = 48
"""Ceilings that are tried, from a part of an even region up to the best heaviest region so far."""
GAIN = 0.98

PATIENCE = 4
"""Sets that may bring nothing before the search ends."""

Pattern = tuple[int, ...]


class PerValueCube:
    name = "per_value"
    summary = "heavy values in blocks of their own, the rest hashed"

    def fit(self, problem: CubeProblem) -> CubeLayout:
        attributes = attributes_of(problem)
        best = one_cube(problem, best_cube(problem))
        worse = 0
        for heavy in heavy_sets(problem):
            layout = with_heavy_values(problem, attributes, heavy, _heaviest(best))
            worse = 0 if _heaviest(layout) < GAIN * _heaviest(best) else worse + 1
            if not worse:
                best = layout
            elif worse == PATIENCE:
                break
        return best


def _heaviest(layout: CubeLayout) -> float:
    return float(layout.predicted.rows_in.max())


def heavy_sets(problem: CubeProblem) -> list[tuple[Int64, ...]]:
    """Growing sets of heavy values, by the most rows that a relation has of them beside those chosen before.

    So a supplier is not heavy merely because one of its parts is.
    """
    least = WORTH_A_BLOCK * problem.input_rows / problem.workers
    chosen: list[tuple[int, int]] = []
    sets: list[tuple[Int64, ...]] = []
    groups = list(problem.groups)
    for step in STEPS:
        more = _heaviest_values(groups, least)[: step - len(chosen)]
        if not more:
            break
        chosen += more
        heavy = tuple(
            np.array([k for a, k in chosen if a == attribute], dtype=np.int64)
            for attribute in range(len(problem.query.attributes))
        )
        if np.prod([len(h) + 1 for h in heavy]) > MOST_PATTERNS:
            break
        sets.append(heavy)
        for a, key in more:
            value = np.array([key])
            groups = [g.where(a, value, inside=False) if a in g.attributes else g for g in groups]
    return sets


def _heaviest_values(groups: list[KeyGroups], least: float) -> list[tuple[int, int]]:
    """(attribute, value) by the most rows that a relation has of it."""
    rows: dict[tuple[int, int], float] = {}
    for g in groups:
        for a in g.attributes:
            keys, counts = g.values(a)
            for key, count in zip(keys[counts >= least].tolist(), counts[counts >= least].tolist(), strict=True):
                rows[a, key] = max(rows.get((a, key), 0.0), count)
    return sorted(rows, key=lambda v: (-rows[v], v))


class _BlockFitter:
    """The cubes of one block for any number of cells."""

    def __init__(self, problem: CubeProblem, pattern: Pattern, rows: PatternRows, least: float) -> None:
        groups: list[KeyGroups] = [rows.of(i, pattern) for i in problem.query.relations]
        light = [tuple(a for a in g.attributes if not pattern[a]) for g in problem.groups]
        total = float(sum(g.total for g in groups))
        self.ladder = [Cube((), total, total, 1)]
        if total > least and all(g.total > 0 for g in groups):
            spread = frozenset(
                i for i, g in enumerate(problem.groups) if len(light[i]) < len(g.attributes) or not light[i]
            )
            self.ladder = CubeFitter(groups, light, problem.workers).ladder(frozenset(), spread, problem.workers)

    def below(self, ceiling: float) -> Cube:
        """The cube of fewest cells whose load is not above the ceiling, or the lightest there is."""
        return next((c for c in self.ladder if c.load <= ceiling), self.ladder[-1])


def with_heavy_values(
    problem: CubeProblem, attributes: tuple[tuple[int, ...], ...], heavy: tuple[Int64, ...], most: float
) -> CubeLayout:
    """A block for every pattern of these values, under the best ceiling for the cells up to `most`."""
    patterns = list(product(*(range(len(h) + 1) for h in heavy)))
    even = max(1.0, problem.input_rows / problem.workers)
    rows = PatternRows(problem.groups, heavy)
    blocks = [_BlockFitter(problem, p, rows, WORTH_A_BLOCK * even) for p in patterns]
    ceiling = _best_ceiling(blocks, problem.workers, WORTH_A_BLOCK * even, most)
    shapes: list[tuple[Pattern, tuple[Dimension, ...]]] = [
        (p, b.below(ceiling).dimensions) for p, b in zip(patterns, blocks, strict=True)
    ]
    return lay_out(problem.workers, attributes, shapes, rows, lambda loads: pack(loads, problem.workers))


def _best_ceiling(blocks: list[_BlockFitter], workers: int, low: float, high: float) -> float:
    """The ceiling under which the heaviest region is lightest: no lighter than its heaviest cell, nor than the mean."""
    best = float("inf"), 0.0
    for ceiling in np.geomspace(low, max(low, high), CEILINGS):
        cubes = [b.below(float(ceiling)) for b in blocks]
        heaviest = max(max(c.load for c in cubes), sum(c.cells * c.load for c in cubes) / workers)
        best = min(best, (heaviest, float(ceiling)))
    return best[1]


def pack(loads: Float64, regions: int) -> Int64:
    """A region for every cell: the heaviest cell first, each to the lightest region."""
    free = [(0.0, r) for r in range(regions)]
    out = np.empty(len(loads), dtype=np.int64)
    for cell in np.argsort(-loads, kind="stable"):
        load, region = heapq.heappop(free)
        out[cell] = region
        heapq.heappush(free, (load + float(loads[cell]), region))
    return out
