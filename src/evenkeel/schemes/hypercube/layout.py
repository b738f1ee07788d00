"""Where every row of every relation goes: blocks of cells, one block for each pattern of heavy values.

    heavy values of y: {7}         a row of S with y = 7 goes to block B, any other to block A;
                                   a row of T, which has no y, goes to both
    block A: y light               block B: y = 7, so y divides nothing
      y  x  z                        S (row by row)  x  z
    [ ][ ][ ][ ]                   [ ][ ]
    [ ][ ][ ][ ]                   [ ][ ]
    [ ][ ][ ][ ]                   [ ][ ]

A layout without heavy values is one block: the cube of the Squall thesis, section 5.1.2.

Invariant: each combination of matching rows meets in exactly one cell. Its attributes have one value each, so one
pattern and one block; and along every dimension of the block at least one relation is placed, all those that are
placed by the same value or all by one relation's own row number.

Cells are numbered region + workers * k, so that the number of the cell is also where it runs, several cells may share
a region, and a join on the cell's number keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from evenkeel import dealing
from evenkeel.report import LoadReport
from evenkeel.schemes.base import Routed
from evenkeel.stats import KeyGroups
from evenkeel.types import Float64, Int64

ROW = -1
"""The source of a dimension that spreads a relation's rows by their number."""


@dataclass(frozen=True)
class Dimension:
    """One axis of a block: `relations` are placed along it by the hash of `source`, or by row; others are copied."""

    source: int
    """An attribute, or ROW."""
    relations: frozenset[int]
    share: int


@dataclass(frozen=True, eq=False)
class Block:
    pattern: tuple[int, ...]
    """For every attribute 0 where its value is light, k where it is the k-th heavy one."""
    dimensions: tuple[Dimension, ...]
    cells: Int64
    """The number of every cell, in the order of the dimensions, the last one fastest."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(d.share for d in self.dimensions)

    def sources(self, relation: int, attributes: tuple[int, ...]) -> tuple[int, ...]:
        """How many parts each source of the relation's place has here: its attributes, then its row number."""
        mine = {d.source: d.share for d in self.dimensions if relation in d.relations}
        return tuple(mine.get(a, 1) for a in (*attributes, ROW))

    def lists(self, relation: int, attributes: tuple[int, ...]) -> list[Int64]:
        """The cells of a row, for every place it may have along its sources, the last one fastest."""
        order = [a for a in (*attributes, ROW)]
        along = sorted(
            (i for i, d in enumerate(self.dimensions) if relation in d.relations),
            key=lambda i: order.index(self.dimensions[i].source),
        )
        others = [i for i in range(len(self.dimensions)) if i not in along]
        cells = self.cells.reshape(self.shape).transpose(along + others)
        places = int(np.prod([self.dimensions[i].share for i in along], dtype=np.int64))
        return list(cells.reshape(places, -1))


@dataclass(frozen=True, eq=False)
class CubeRoute:
    """A relation's route as Spark runs it: SQL with the places {0}, {1}, ... for key hashes and {row}.

    `block` picks the blocks of a row (None where there is one), `cells` the list of its cells in the block.
    """

    block: str | None
    cells: str
    single: bool
    """Whether a row has one cell in every block, so that `cells` is a number and not a list."""


@dataclass(frozen=True, eq=False)
class CubeLayout:
    workers: int
    attributes: tuple[tuple[int, ...], ...]
    """The attributes of every relation."""
    heavy: tuple[Int64, ...]
    """For every attribute the hashes of its heavy values."""
    blocks: tuple[Block, ...]
    predicted: LoadReport
    shipped: Float64
    """Rows of every relation that all cells receive, as predicted."""
    largest: Float64
    """Rows of every relation in the region that receives most of it, as predicted."""

    def blocks_of(self, relation: int, pattern: Sequence[int]) -> list[Block]:
        """The blocks that agree with the values of a row; `pattern` is in the order of its attributes."""
        mine = self.attributes[relation]
        return [b for b in self.blocks if all(b.pattern[a] == k for a, k in zip(mine, pattern, strict=True))]

    def patterns(self, relation: int) -> list[tuple[int, ...]]:
        return list(product(*(range(len(self.heavy[a]) + 1) for a in self.attributes[relation])))

    def uses_rows(self, relation: int) -> bool:
        """Whether the row's number is part of its route."""
        dimensions = (d for b in self.blocks for d in b.dimensions)
        return any(d.source == ROW and relation in d.relations and d.share > 1 for d in dimensions)

    def route(self, relation: int, keys: Int64, row: Int64) -> Routed:
        """The cells of rows; `keys` has a column for every attribute of the relation."""
        mine = self.attributes[relation]
        rows, cells = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        index = np.zeros(len(keys), dtype=np.int64)
        for j, a in enumerate(mine):
            index = index * (len(self.heavy[a]) + 1) + _positions(self.heavy[a], keys[:, j])
        for at, pattern in enumerate(self.patterns(relation)):
            here = np.flatnonzero(index == at)
            for block in self.blocks_of(relation, pattern) if len(here) else ():
                place = np.zeros(len(here), dtype=np.int64)
                *shares, rows_share = block.sources(relation, mine)
                for share, values in zip(shares, keys[here].T, strict=True):
                    place = place * share + np.mod(values, share)
                place = place * rows_share + dealing.slot(row[here], rows_share)
                listed = np.array(block.lists(relation, mine))[place]
                rows.append(np.repeat(here, listed.shape[1]))
                cells.append(listed.ravel())
        return Routed(np.concatenate(rows), np.concatenate(cells))

    def route_sql(self, relation: int) -> CubeRoute:
        mine = self.attributes[relation]
        patterns = [self.blocks_of(relation, p) for p in self.patterns(relation)]
        lists = [[b.lists(relation, mine) for b in blocks] for blocks in patterns]
        single = all(len(cells) == 1 for blocks in lists for block in blocks for cells in block)
        shares = [[b.sources(relation, mine) for b in blocks] for blocks in patterns]
        if len(self.blocks) == 1:
            return CubeRoute(None, _pick(lists[0][0], single, _place([str(s) for s in shares[0][0]])), single)
        index = ""
        for j, a in enumerate(mine):
            if len(self.heavy[a]):
                found = f"cast(coalesce(array_position({_longs(self.heavy[a])}, {{{j}}}), 0L) as int)"
                index = f"({index}) * {len(self.heavy[a]) + 1} + {found}" if index else found
        fields = [f"'s{k}', {{s[{k}]}}" for k in range(len(mine) + 1)]

        def struct(block_shares: tuple[int, ...], block_lists: list[Int64]) -> str:
            sides = ", ".join(f.format(s=block_shares) for f in fields)
            return f"named_struct({sides}, 'cells', {_literal(block_lists, single)})"

        by_pattern = [
            f"array({', '.join(struct(s, c) for s, c in zip(ss, cc, strict=True))})"
            for ss, cc in zip(shares, lists, strict=True)
        ]
        block = f"array({', '.join(by_pattern)})[{index or '0'}]"
        place = _place([f"_block.s{k}" for k in range(len(mine) + 1)])
        return CubeRoute(block, f"_block.cells[{place}]", single)


def _positions(heavy: Int64, keys: Int64) -> Int64:
    """1 + the place of each key among the heavy ones, 0 where it is light."""
    out = np.zeros(len(keys), dtype=np.int64)
    for k, value in enumerate(heavy):
        out[keys == value] = k + 1
    return out


def _place(shares: list[str]) -> str:
    """The place along the sources, as SQL: keys first, then the row."""
    by_key = [f"cast(pmod({{{j}}}, cast({share} as bigint)) as int)" for j, share in enumerate(shares[:-1])]
    place = ""
    for share, at in zip(shares, [*by_key, dealing.slot_sql("{row}", shares[-1])], strict=True):
        if share == "1":
            continue
        place = f"({place}) * {share} + {at}" if place else at
    return place or "0"


def _pick(lists: list[Int64], single: bool, place: str) -> str:
    if single and [int(c[0]) for c in lists] == list(range(len(lists))):
        return place
    return f"{_literal(lists, single)}[{place}]"


def _literal(lists: list[Int64], single: bool) -> str:
    if single:
        return f"array({', '.join(str(int(c[0])) for c in lists)})"
    return f"array({', '.join('array(' + ', '.join(map(str, c)) + ')' for c in lists)})"


def _longs(values: Int64) -> str:
    shown = (f"{v}L" if v > -(2**63) else "(-9223372036854775807L - 1L)" for v in values.tolist())
    return f"array({', '.join(shown)})"


def lay_out(
    workers: int,
    attributes: tuple[tuple[int, ...], ...],
    shapes: Sequence[tuple[tuple[int, ...], tuple[Dimension, ...]]],
    rows: PatternRows,
    place: Callable[[Float64], Int64] | None = None,
) -> CubeLayout:
    """Number the cells of all blocks and predict the rows of every region.

    `place` gives the region of every cell from the loads of all; by default they are numbered through.
    """
    sizes = [int(np.prod([d.share for d in dimensions], dtype=np.int64)) for _, dimensions in shapes]
    groups, heavy = rows.groups, rows.heavy
    by_relation = np.zeros((len(groups), sum(sizes)))
    at = 0
    for (pattern, dimensions), size in zip(shapes, sizes, strict=True):
        for i in range(len(groups)):
            by_relation[i, at : at + size] = cell_rows(i, rows.of(i, pattern), dimensions).ravel()
        at += size
    every = by_relation.sum(axis=0)
    regions = np.arange(len(every)) if place is None else place(every)
    numbers = _number(regions, workers)
    blocks, at = [], 0
    for (pattern, dimensions), size in zip(shapes, sizes, strict=True):
        blocks.append(Block(pattern, dimensions, numbers[at : at + size]))
        at += size
    rows_in = np.bincount(regions, every, workers).astype(np.float64)
    total = float(sum(g.total for g in groups))
    report = LoadReport(rows_in, np.zeros(workers), total, None, "predicted")
    largest = np.array([np.bincount(regions, rows, workers).max() for rows in by_relation])
    return CubeLayout(workers, attributes, heavy, tuple(blocks), report, by_relation.sum(axis=1), largest)


def _number(regions: Int64, workers: int) -> Int64:
    """region + workers * k for the k-th cell of a region."""
    order = np.argsort(regions, kind="stable")
    ordered = regions[order]
    first = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(len(regions), dtype=np.int64)
    numbers[order] = ordered + workers * (np.arange(len(regions)) - first)
    return numbers


class PatternRows:
    """The rows of every relation by pattern; blocks that differ in attributes it does not have share them."""

    def __init__(self, groups: tuple[KeyGroups, ...], heavy: tuple[Int64, ...]) -> None:
        self.groups = groups
        self.heavy = heavy
        self._found: dict[tuple[int, tuple[int, ...]], KeyGroups] = {}

    def of(self, relation: int, pattern: Sequence[int]) -> KeyGroups:
        groups = self.groups[relation]
        key = relation, tuple(pattern[a] for a in groups.attributes)
        if key not in self._found:
            self._found[key] = in_pattern(groups, pattern, self.heavy)
        return self._found[key]


def in_pattern(groups: KeyGroups, pattern: Sequence[int], heavy: tuple[Int64, ...]) -> KeyGroups:
    """The rows of a relation that go to a block."""
    for a in groups.attributes:
        if len(heavy[a]):
            values = heavy[a] if pattern[a] == 0 else heavy[a][pattern[a] - 1 : pattern[a]]
            groups = groups.where(a, values, inside=pattern[a] > 0)
    return groups


def cell_rows(relation: int, groups: KeyGroups, dimensions: Sequence[Dimension]) -> Float64:
    """The expected rows of a relation in every cell of a block.

    A group goes to the bin of each value that is known, and evenly to all bins of a light one.
    """
    shape = tuple(d.share for d in dimensions)
    out = np.zeros(shape)
    along = [i for i, d in enumerate(dimensions) if relation in d.relations and d.share > 1]
    by_value = [i for i in along if dimensions[i].source != ROW]
    columns = [groups.column(dimensions[i].source) for i in by_value]
    known = groups.known[:, columns]
    code = known @ (1 << np.arange(len(columns))) if columns else np.zeros(len(groups.counts), dtype=np.int64)
    for subset in np.unique(code):
        here = code == subset
        fixed = [i for b, i in enumerate(by_value) if subset >> b & 1]
        index = np.zeros(int(here.sum()), dtype=np.int64)
        for i in fixed:
            share = dimensions[i].share
            index = index * share + np.mod(groups.keys[here, groups.column(dimensions[i].source)], share)
        sizes = [dimensions[i].share for i in fixed]
        rows = np.bincount(index, groups.counts[here], int(np.prod(sizes, dtype=np.int64)))
        spread = rows / float(np.prod([dimensions[i].share for i in along if i not in fixed]))
        out += spread.reshape([shape[i] if i in fixed else 1 for i in range(len(shape))])
    return out
