"""Regionalization: the candidate cells of a join matrix are cut into few rectangles, the heaviest made light.

The matrix has a row for each bucket of the left input and a column for each bucket of the right; a cell is a
candidate when its buckets may hold rows that match. Equality, band and inequality joins are monotone: their
candidates form a staircase, and a rectangle counts only from its first candidate to its last.

    1 1 . . . . .      four regions; a region reads the rows and the columns that it spans,
    1 1 . . . . .      so it weighs w_in * (rows + cols) + w_out * out
    . 2 2 2 . . .
    . . 2 2 3 3 .      row 3 and columns 1, 4 and 5 are read by two regions each:
    . . . . 3 3 .      the price of cutting there
    . . . . 4 4 4

Invariant: the regions are disjoint and hold every candidate, so a pair that may match meets exactly once.
Cost: c^2 counts for c candidate cells, and for each cell some passes over a vector of c. Trying each cut of each
rectangle would take n^5 steps for an n x n matrix. The heaviest region is within `TOLERANCE` of the lightest
that cutting in two, again and again, can give; that is within twice the lightest of any rectangles.
Source: MonotonicBSP, Squall thesis, section 4.3.3; that cuts can be swapped, and so left out, is added here.

    fewest(r) = 1                                                if r weighs at most delta
              = least fewest(A) + fewest(B) over the lines in r   with A before the line, B after it, both shrunk
    search for the least delta with fewest(everything) <= regions

A line c need not be tried when A has a best cut c' that does not cross c: c' first and c second give the same
parts. Nor when A is one region and still is at the next line. What remains are a few lines near the upper left
corner of r, and they are the same for all r with that corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from evenkeel.types import Float64, Int64

TOLERANCE = 1.01
"""How far the heaviest region may be above the best."""
MOST_CELLS = 4096
"""Candidate cells at the most: four bytes are held for each pair of them."""
MOST_CROSSINGS = 500_000
"""The sum over candidate cells of candidates in its row x in its column: the steps of a pass, a microsecond each."""
NEVER = 1 << 29
"""A count that no cutting reaches; the sum of two still fits."""

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class JoinMatrix:
    """Input rows of each bucket, output rows of each cell, and which cells are candidates."""

    rows: Float64
    """Left input rows of each row."""
    cols: Float64
    """Right input rows of each column."""
    out: Float64
    """Output rows of each cell; two dimensions."""
    first: Int64
    last: Int64
    """The candidates of row i are in columns first[i]..last[i]; it has none when first[i] > last[i].

    Both are nondecreasing over the rows that have candidates.
    """


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Rows top..bottom and columns left..right, ends included."""

    top: int
    bottom: int
    left: int
    right: int


def monotonic_bsp(matrix: JoinMatrix, regions: int, w_in: float, w_out: float) -> tuple[Rectangle, ...]:
    """At most `regions` disjoint rectangles that hold every candidate, the heaviest as light as cuts can make it.

    Where candidates are too many, neighbouring rows and columns are merged until they are within the limits.
    """
    row_cuts, col_cuts = _cuts_within_limits(matrix, w_in, w_out)
    stairs = _Staircase(_merged(matrix, row_cuts, col_cuts), w_in, w_out)
    found = stairs.rectangles(stairs.search(regions)) if stairs.cells else ()
    return tuple(fine for r in found if (fine := _refined(matrix, r, row_cuts, col_cuts)) is not None)


def fewest(matrix: JoinMatrix, delta: float, w_in: float, w_out: float) -> tuple[int, tuple[Rectangle, ...]]:
    """The least number of regions that weigh at most delta, and such regions; a single cell may weigh more."""
    stairs = _Staircase(matrix, w_in, w_out)
    found = stairs.rectangles(stairs.regions(stairs.counts(delta))) if stairs.cells else ()
    return len(found), found


def merged_candidates(first: Int64, last: Int64, row_cuts: Int64, col_cuts: Int64) -> tuple[Int64, Int64]:
    """The candidate columns of each row when what lies between two cuts becomes one row, or one column."""
    some = first <= last
    start, stop = np.full(len(first), len(col_cuts) - 1), np.full(len(first), -1)
    start[some] = np.searchsorted(col_cuts, first[some], side="right") - 1
    stop[some] = np.searchsorted(col_cuts, last[some], side="right") - 1
    return np.minimum.reduceat(start, row_cuts[:-1]), np.maximum.reduceat(stop, row_cuts[:-1])


class _Staircase:
    """The candidate cells, numbered row by row, of a matrix without its empty rows and columns.

    A rectangle from candidate to candidate is a pair of cells: its upper left and its lower right corner.
    """

    def __init__(self, matrix: JoinMatrix, w_in: float, w_out: float) -> None:
        filled = _heights(matrix.first, matrix.last, len(matrix.cols)) > 0
        self.rows, self.cols = np.flatnonzero(matrix.first <= matrix.last), np.flatnonzero(filled)
        renumbered, each = np.cumsum(filled) - 1, np.arange(len(self.cols))
        first, last = renumbered[matrix.first[self.rows]], renumbered[matrix.last[self.rows]]
        width = last - first + 1
        # Row k spans the columns first[k]..last[k], column x the rows top[x]..bottom[x]; past the end both begin last.
        self.first, self.last = np.append(first, len(self.cols)), last
        self.top = np.append(np.searchsorted(last, each), len(self.rows))
        self.bottom = np.searchsorted(first, each, side="right") - 1
        # The cell in row k and column x has the number origin[k] + x.
        self.origin = np.cumsum(width) - width - first
        self.row = np.repeat(np.arange(len(self.rows)), width)
        self.col = np.arange(len(self.row)) - self.origin[self.row]
        self.cells = len(self.row)
        # Weights of what lies before the lines of the matrix, its empty rows and columns included.
        self.rows_before, self.cols_before = w_in * _before(matrix.rows), w_in * _before(matrix.cols)
        self.out_before = np.zeros((len(matrix.rows) + 1, len(matrix.cols) + 1))
        self.out_before[1:, 1:] = w_out * np.cumsum(np.cumsum(matrix.out, axis=0), axis=1)
        self.unit = len(self.rows) + len(self.cols) + 1
        """Counts are kept as count * unit + line: the least of them is the least count and its first line."""

    def weight(self, u: int | Int64, v: int | Int64) -> Float64:
        """What rectangles with these corners weigh."""
        above, below = self.rows[self.row[u]], self.rows[self.row[v]] + 1
        left, right = self.cols[self.col[u]], self.cols[self.col[v]] + 1
        rows, cols, out = self.rows_before, self.cols_before, self.out_before
        inside: Float64 = out[below, right] - out[above, right] - out[below, left] + out[above, left]
        weight: Float64 = inside + (rows[below] - rows[above]) + (cols[right] - cols[left])
        return weight

    def at_least(self, regions: int) -> float:
        """No heaviest region is lighter: some region has its share of everything, some has the heaviest cell."""
        cells = np.arange(self.cells)
        rows, cols = np.diff(self.rows_before)[self.rows], np.diff(self.cols_before)[self.cols]
        each = self.weight(cells, cells)
        out = each - rows[self.row] - cols[self.col]
        return float(max((rows.sum() + cols.sum() + out.sum()) / regions, each.max()))

    def search(self, regions: int) -> tuple[Int64, Int64]:
        """Corners of at most so many regions; delta is sought between what is too little and what was reached."""
        found = np.array([0]), np.array([self.cells - 1])
        heaviest = float(self.weight(*found).max())
        delta = too_little = self.at_least(regions)
        excess = 1.0
        while heaviest > too_little * TOLERANCE:
            u, v = self.regions(self.counts(delta))
            if len(u) <= regions:
                found, heaviest = (u, v), float(self.weight(u, v).max())
            else:
                too_little, excess = max(delta, 1e-9 * heaviest), len(u) / regions
            delta = min(sqrt(too_little * heaviest), too_little * max(excess, TOLERANCE))
        return found

    def counts(self, delta: float) -> Int32:
        """For each pair of corners the fewest regions that weigh at most delta, times unit.

        From a corner, cells are visited row by row. When the visit comes, the count from the corner to the cell is
        final, and the lines that end below and to the right of the cell are tried for all corners beyond them.
        """
        n_rows, n_cols, unit = len(self.rows), len(self.cols), self.unit
        origin, first, last = self.origin.tolist(), self.first.tolist(), self.last.tolist()
        top, bottom = self.top.tolist(), self.bottom.tolist()
        counts = np.full((self.cells, self.cells), NEVER, dtype=np.int32)
        for corner in reversed(range(self.cells)):
            row, col = int(self.row[corner]), int(self.col[corner])
            fitting = (self.weight(corner, np.arange(corner, self.cells)) <= delta) & (self.col[corner:] >= col)
            fitting[0] = True
            single = np.flatnonzero(fitting) + corner
            fits, last_fit = set(single.tolist()), int(single[-1])
            by_row, by_col = np.full((2, self.cells), NEVER, dtype=np.int32)
            lowest = -1  # of the lines tried
            for k in range(row, n_rows):
                if origin[k] + first[k] > last_fit and top[first[k] + 1] > lowest:
                    break  # no line tried so far crosses one that could be tried from here on
                for x in range(max(col, first[k]), last[k] + 1):
                    cell, ends_row, ends_col = origin[k] + x, x == last[k], k == bottom[x]
                    below = k + 1 < n_rows and (ends_row or not ends_col)
                    right = x + 1 < n_cols and (ends_col or not ends_row)
                    if cell in fits:
                        count = unit
                        below = below and origin[k + 1] + (last[k + 1] if ends_row else x) not in fits
                        right = right and origin[bottom[x + 1] if ends_col else k] + x + 1 not in fits
                    else:
                        count_row, line_row = divmod(by_row.item(cell), unit)
                        count_col, line_col = divmod(by_col.item(cell), unit)
                        count = min(count_row, count_col) * unit
                        below = below and count_col < count_row and line_col >= first[k + 1]
                        right = right and count_row < count_col and line_row >= top[x + 1]
                    if below:
                        lowest = k
                        rest = counts[origin[k + 1] + max(col, first[k + 1])]
                        beyond = slice(cell + 1, None) if ends_row else self.origin[k + 1 : bottom[x] + 1] + x
                        by_row[beyond] = np.minimum(by_row[beyond], rest[beyond] + (count + k))
                    if right:
                        rest = counts[origin[max(row, top[x + 1])] + x + 1]
                        beyond = slice(cell + 1, None if ends_col else origin[k] + last[k] + 1)
                        by_col[beyond] = np.minimum(by_col[beyond], rest[beyond] + (count + x))
            best = np.minimum(by_row, by_col)
            best -= best % unit
            best[single] = unit
            np.minimum(best, NEVER, out=counts[corner])
        return counts

    def regions(self, counts: Int32) -> tuple[Int64, Int64]:
        """Corners of the regions of everything: parts are cut where the two counts are least, down to one each."""
        found, parts = [], [(0, self.cells - 1)]
        while parts:
            u, v = parts.pop()
            if counts[u, v] == self.unit:
                found.append((u, v))
                continue
            k, x = np.arange(self.row[u], self.row[v]), np.arange(self.col[u], self.col[v])
            ends = np.append(
                self.origin[k] + np.minimum(self.col[v], self.last[k]),
                self.origin[np.minimum(self.row[v], self.bottom[x])] + x,
            )
            begins = np.append(
                self.origin[k + 1] + np.maximum(self.col[u], self.first[k + 1]),
                self.origin[np.maximum(self.row[u], self.top[x + 1])] + x + 1,
            )
            at = np.argmin(counts[u, ends] + counts[begins, v])
            parts += [(int(begins[at]), v), (u, int(ends[at]))]
        corners = np.array(found)
        return corners[:, 0], corners[:, 1]

    def rectangles(self, corners: tuple[Int64, Int64]) -> tuple[Rectangle, ...]:
        u, v = corners
        ends = self.rows[self.row[u]], self.rows[self.row[v]], self.cols[self.col[u]], self.cols[self.col[v]]
        return tuple(Rectangle(*r) for r in np.array(ends).T.tolist())


def _before(sizes: Float64) -> Float64:
    """What lies before each line, from nothing to everything."""
    return np.concatenate([[0.0], np.cumsum(sizes)])


def _heights(first: Int64, last: Int64, cols: int) -> Int64:
    """How many candidates each column has."""
    some = first <= last
    begin, end = np.bincount(first[some], minlength=cols + 1), np.bincount(last[some] + 1, minlength=cols + 1)
    return np.cumsum(begin - end)[:-1]


def _cuts_within_limits(matrix: JoinMatrix, w_in: float, w_out: float) -> tuple[Int64, Int64]:
    """Lines to merge between, of equal weights of rows and of columns, as few as the limits ask; else all lines."""
    by_row = w_in * matrix.rows + w_out * matrix.out.sum(axis=1)
    by_col = w_in * matrix.cols + w_out * matrix.out.sum(axis=0)
    row_cuts, col_cuts, share = np.arange(len(by_row) + 1), np.arange(len(by_col) + 1), 1.0
    while not _tractable(*merged_candidates(matrix.first, matrix.last, row_cuts, col_cuts), len(col_cuts) - 1):
        share *= 0.95
        row_cuts, col_cuts = (_even_cuts(w, int(np.ceil(len(w) * share))) for w in (by_row, by_col))
    return row_cuts, col_cuts


def _tractable(first: Int64, last: Int64, cols: int) -> bool:
    some = first <= last
    crossed = _before(_heights(first, last, cols).astype(np.float64))
    width = (last - first + 1)[some]
    crossings = width * (crossed[last[some] + 1] - crossed[first[some]])
    return bool(width.sum() <= MOST_CELLS and crossings.sum() <= MOST_CROSSINGS)


def _even_cuts(weights: Float64, parts: int) -> Int64:
    before = _before(weights)
    lines = np.searchsorted(before, before[-1] * np.arange(1, parts) / parts)
    return np.unique(np.concatenate([[0], lines, [len(weights)]]))


def _merged(matrix: JoinMatrix, row_cuts: Int64, col_cuts: Int64) -> JoinMatrix:
    rows, cols = np.add.reduceat(matrix.rows, row_cuts[:-1]), np.add.reduceat(matrix.cols, col_cuts[:-1])
    out = np.add.reduceat(np.add.reduceat(matrix.out, row_cuts[:-1], axis=0), col_cuts[:-1], axis=1)
    return JoinMatrix(rows, cols, out, *merged_candidates(matrix.first, matrix.last, row_cuts, col_cuts))


def _refined(matrix: JoinMatrix, r: Rectangle, row_cuts: Int64, col_cuts: Int64) -> Rectangle | None:
    """A rectangle of the merged matrix in terms of the matrix itself, from its first candidate to its last."""
    top, left, right = int(row_cuts[r.top]), int(col_cuts[r.left]), int(col_cuts[r.right + 1]) - 1
    rows = slice(top, int(row_cuts[r.bottom + 1]))
    first, last = np.maximum(matrix.first[rows], left), np.minimum(matrix.last[rows], right)
    some = np.flatnonzero(first <= last)
    if not len(some):
        return None
    return Rectangle(top + int(some[0]), top + int(some[-1]), int(first[some[0]]), int(last[some[-1]]))
