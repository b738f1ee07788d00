"""Coarsening: thousands of fine buckets a side become a small grid, its heaviest candidate cell made light.

Regions are unions of grid cells, so a cell that is too heavy is a region that is too heavy. Cuts therefore lie
close together where the work is, and far apart where there is little or where nothing can match:

    fine                    grid
    x x . . . . . . . .      # # .
    . x x X . . . . . .      # # .       X is a heavy cell: a row and a column are spent on it
    . . . X X . . . . .      . # .
    . . . . x x x . . .      . # #
    . . . . . . x x x x      . . #

Invariant: the cuts of both sides go from 0 to the number of fine buckets, ascending; a cell is a candidate when
it holds a fine candidate, so the grid of a staircase is a staircase.
Cost: a step finds the best cuts of one side with those of the other fixed, by a search on the heaviest cell. A try
is greedy, each bucket extended as far as it may: some bisections for each candidate cell of the grid. A step reads
the output cells once; two or three rounds of steps suffice.
Guarantee: within twice the best grid where input is all that weighs, for the first cuts make each side's heaviest
bucket as light as can be, and no step makes a grid worse. With output, no grid beyond twice the best was found.
Source: MonotonicCoarsening, Squall thesis, section 4.3.2.

    cut each side as if the other were one bucket
    until a round gains less than a hundredth:
        for side in sides:
            limit = least heaviest cell that `size` buckets of this side can have, with the other side as it is
            then, with that limit, least mass of a bucket: cuts that the limit does not need are spent evenly
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from evenkeel.schemes.tiling import JoinMatrix, merged_candidates
from evenkeel.types import Float64, Int64

PRECISION = 1.005
"""How far a step may stay above the best."""
GAIN = 1.01
"""What a round must gain for another to follow."""
ROUNDS = 4


@dataclass(frozen=True, eq=False)
class SampleMatrix:
    """A join matrix of fine buckets: input rows by bucket, output rows by cell where there are any."""

    rows: Float64
    cols: Float64
    """Input rows of each row and of each column."""
    first: Int64
    last: Int64
    """The candidate columns of each row, as in a join matrix."""
    at_row: Int64
    at_col: Int64
    out: Float64
    """Cells with output, in any order, and how much; all of them candidates."""


def coarsen(sample: SampleMatrix, size: int, w_in: float, w_out: float) -> tuple[Int64, Int64]:
    """Row cuts and column cuts of a grid of at most size x size, from 0 to the end of each side."""
    sides = _Side.both(sample, w_in, w_out)
    whole = [np.array([0, len(side.weight)]) for side in sides]
    start = [_Steps(sides[i], sides[1 - i], whole[1 - i]).best(size)[1] for i in (0, 1)]
    (_, cuts) = min((_rounds(sides, start, i, size) for i in (0, 1)), key=lambda found: found[0])
    return cuts[0], cuts[1]


def _rounds(sides: tuple[_Side, _Side], start: list[Int64], moving: int, size: int) -> tuple[float, list[Int64]]:
    """The heaviest cell and the cuts when the two sides have taken turns."""
    cuts, heaviest = list(start), inf
    for _ in range(ROUNDS):
        before = heaviest
        for i in (moving, 1 - moving):
            heaviest, cuts[i] = _Steps(sides[i], sides[1 - i], cuts[1 - i]).best(size, heaviest)
        if heaviest * GAIN > before:
            break
    return heaviest, cuts


def coarse_matrix(sample: SampleMatrix, row_cuts: Int64, col_cuts: Int64) -> JoinMatrix:
    """The join matrix of the grid. A column without candidates counts as one where a row has some on both sides."""
    shape = len(row_cuts) - 1, len(col_cuts) - 1
    row = np.searchsorted(row_cuts, sample.at_row, side="right") - 1
    col = np.searchsorted(col_cuts, sample.at_col, side="right") - 1
    out = np.bincount(row * shape[1] + col, weights=sample.out, minlength=shape[0] * shape[1]).astype(np.float64)
    rows, cols = np.add.reduceat(sample.rows, row_cuts[:-1]), np.add.reduceat(sample.cols, col_cuts[:-1])
    first, last = merged_candidates(sample.first, sample.last, row_cuts, col_cuts)
    return JoinMatrix(rows, cols, out.reshape(shape), first, last)


@dataclass(frozen=True, eq=False)
class _Side:
    """One side of the matrix; what crosses its fine buckets is in terms of the other side."""

    weight: Float64
    """Of the input of each fine bucket."""
    mass: Float64
    """Of input and output of each fine bucket."""
    first: Int64
    last: Int64
    """The candidates of each fine bucket."""
    at: Int64
    across: Int64
    out: Float64
    """Weights of the output cells, by fine bucket."""

    @classmethod
    def both(cls, sample: SampleMatrix, w_in: float, w_out: float) -> tuple[_Side, _Side]:
        rows, each = np.flatnonzero(sample.first <= sample.last), np.arange(len(sample.cols))
        top = np.searchsorted(sample.last[rows], each)
        bottom = np.searchsorted(sample.first[rows], each, side="right") - 1
        some = top <= bottom
        top[some], bottom[some] = rows[top[some]], rows[bottom[some]]
        top[~some], bottom[~some] = 1, 0
        out = w_out * sample.out
        return (
            cls._of(w_in * sample.rows, sample.first, sample.last, sample.at_row, sample.at_col, out),
            cls._of(w_in * sample.cols, top, bottom, sample.at_col, sample.at_row, out),
        )

    @classmethod
    def _of(cls, weight: Float64, first: Int64, last: Int64, at: Int64, across: Int64, out: Float64) -> _Side:
        order = np.argsort(at, kind="stable")
        mass = weight + np.bincount(at, weights=out, minlength=len(weight))
        return cls(weight, mass, first, last, at[order], across[order], out[order])


class _Steps:
    """Cutting one side when the other is cut: a bucket of the other is a band of candidates on this one.

    Lists, for bisection of single values is what takes the time.
    """

    def __init__(self, side: _Side, other: _Side, cuts: Int64) -> None:
        n = len(side.weight)
        filled, crossed = side.first <= side.last, other.first <= other.last
        start = np.minimum.reduceat(np.where(crossed, other.first, n), cuts[:-1])
        stop = np.maximum.reduceat(np.where(crossed, other.last, -1), cuts[:-1])
        bands = np.flatnonzero(start <= stop)
        width = np.add.reduceat(other.weight, cuts[:-1])
        band = np.searchsorted(cuts, side.across, side="right") - 1
        order = np.argsort(band, kind="stable")
        band, at, out = band[order], side.at[order], np.cumsum(side.out[order])
        # one entry for each fine bucket in a band: where, and the output so far
        ends = np.flatnonzero((np.diff(band, append=-1) != 0) | (np.diff(at, append=-1) != 0))
        band, at, out = band[ends], at[ends], np.concatenate([[0.0], out[ends]])
        before, mass = (np.concatenate([[0.0], np.cumsum(w)]) for w in (side.weight, side.mass))
        single = side.weight[filled] + width[np.searchsorted(cuts, side.first[filled], side="right") - 1]
        cells = side.weight[at] + width[band] + np.diff(out)
        self.least = float(max(single.max(initial=0.0), cells.max(initial=0.0)))
        self.most = float(before[-1] + width[bands].max(initial=0.0) + out[-1])
        self.n, self.bands = n, len(bands)
        at_filled = np.append(np.flatnonzero(filled), n)
        self.next_filled = at_filled[np.searchsorted(at_filled, np.arange(n))].tolist()
        self.start, self.stop, self.width = start[bands].tolist(), stop[bands].tolist(), width[bands].tolist()
        self.entries = np.append(np.searchsorted(band, bands), len(band)).tolist()
        self.at, self.out, self.reach = at.tolist(), out.tolist(), (before[at + 1] + out[1:]).tolist()
        self.before, self.mass = before.tolist(), mass.tolist()

    def best(self, size: int, known: float = inf) -> tuple[float, Int64]:
        """The heaviest cell of the best cuts, and the cuts; it is known to be no heavier than this."""
        limit, _ = _least(lambda limit: self.cut(size, limit, inf), self.least, min(self.most, known))
        _, cuts = _least(lambda mass: self.cut(size, limit, mass), self.mass[-1] / size, self.mass[-1])
        return limit, np.array(cuts)

    def cut(self, size: int, limit: float, mass: float) -> list[int] | None:
        """Cuts so that no candidate cell is above the limit, no bucket of several above the mass, if there are."""
        cuts, band = [0], 0
        while (at := cuts[-1]) < self.n:
            while band < self.bands and self.stop[band] < at:
                band += 1
            even = max(at + 1, bisect_right(self.mass, self.mass[at] + mass) - 1)
            end = max(min(even, self.extent(at, band, limit)), self.next_filled[at])
            if end == at or len(cuts) > size:
                return None
            cuts.append(end)
        return cuts

    def extent(self, at: int, band: int, limit: float) -> int:
        """Where a bucket that starts here must end for its cells, in this band and the next ones, to be light."""
        end = self.n
        for c in range(band, self.bands):
            if self.start[c] >= end:
                break
            stop = self.entries[c + 1]
            here = bisect_left(self.at, at, self.entries[c], stop)
            room = limit - self.width[c] + self.before[at]
            there = bisect_right(self.reach, room + self.out[here], here, stop)
            fits = bisect_right(self.before, room + self.out[here] - self.out[there]) - 1
            if there < stop:
                fits = min(fits, self.at[there])
            end = min(end, max(fits, self.start[c]))
        return end


def _least(cut: Callable[[float], list[int] | None], least: float, most: float) -> tuple[float, list[int]]:
    """The least value for which there are cuts, up to the precision, and the cuts; there are some for the most."""
    most *= 1 + 1e-9  # sums that run over everything are rounded
    found, cuts = least, cut(least)
    if cuts is None:
        found, cuts, too_little = most, cut(most), max(least, 1e-9 * most)
        while found > too_little * PRECISION:
            middle = sqrt(too_little * found)
            if (lighter := cut(middle)) is None:
                too_little = middle
            else:
                found, cuts = middle, lighter
    assert cuts is not None
    return found, cuts
