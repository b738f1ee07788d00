"""Unit, on worked examples: the cubes of the Squall thesis, sections 5.1 and 5.2, and what goes beyond them."""

from __future__ import annotations

import numpy as np
import pytest

from evenkeel.conditions import Attribute, Query
from evenkeel.schemes.hypercube import CUBES, ROW, CubeProblem, cube_named
from evenkeel.schemes.hypercube.per_value import pack
from evenkeel.stats import KeyGroups
from evenkeel.types import Exact

H = 1_000_000.0
NAMES = [c.name for c in CUBES]


def zipf(values, exponent):
    weights = np.arange(1.0, values + 1) ** -exponent
    return weights / weights.sum()


ZIPF_2 = zipf(1000, 2.0)


def mixed(values):
    """Numbers that look like hashes, one for each value (splitmix64)."""
    x = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).astype(np.int64)


def problem(workers, relations, skew=None, rows=None, unshared=""):
    """Relations as words of one-letter attributes, of H rows each; `skew` says what part of the rows each value has.

    skew={"Sz": weights}: attribute z of relation S, every other attribute even.
    """
    names = tuple(relations)
    letters = sorted(set("".join(relations.values())))
    attributes = tuple(
        Attribute(x, {i: f"{n}.{x}" for i, n in enumerate(names) if x in relations[n]}, shared=x not in unshared)
        for x in letters
    )
    groups = []
    for name in names:
        mine = tuple(letters.index(x) for x in sorted(relations[name]))
        size = (rows or {}).get(name, H)
        hot = {letters.index(key[1]): w for key, w in (skew or {}).items() if key[0] == name}
        groups.append(one_hot(size, mine, *next(iter(hot.items()))) if hot else KeyGroups.even(size, mine))
    return CubeProblem(Query(names, attributes), tuple(groups), workers)


def one_hot(rows, attributes, attribute, weights):
    keys = np.zeros((len(weights), len(attributes)), dtype=np.int64)
    known = np.zeros(keys.shape, dtype=bool)
    j = attributes.index(attribute)
    keys[:, j], known[:, j] = mixed(np.arange(len(weights))), True
    return KeyGroups(Exact(rows), attributes, keys, known, weights * rows)


def fitted(scheme, problem):
    layout = cube_named(scheme).fit(problem)
    check_cells(layout)
    return layout


def check_cells(layout):
    """Cells have numbers of their own, and run in the region that their number leaves when divided by the workers."""
    numbers = np.concatenate([b.cells for b in layout.blocks])
    assert len(np.unique(numbers)) == len(numbers) and numbers.min() >= 0
    for block in layout.blocks:
        assert len(block.cells) == np.prod(block.shape, dtype=np.int64)
    assert layout.predicted.regions == layout.workers
    assert layout.shipped.sum() == pytest.approx(layout.predicted.rows_in.sum())


def shape(layout, problem):
    """The only block: {"RS by y": 9, "T by row": 7}."""
    (block,) = layout.blocks
    names, attributes = problem.query.names, problem.query.attributes

    def said(d):
        placed = "".join(names[i] for i in sorted(d.relations))
        return f"{placed} by {'row' if d.source == ROW else attributes[d.source].name}"

    return {said(d): d.share for d in block.dimensions}


def heaviest(layout):
    return float(layout.predicted.rows_in.max())


CHAIN = {"R": "y", "S": "yz", "T": "z"}  # R(x, y), S(y, z), T(z, t): x and t join nothing
SKEWED_Z = {"Sz": ZIPF_2, "Tz": ZIPF_2}


@pytest.mark.parametrize("scheme", ["hash", "hybrid", "per_value"])
def test_hash_hypercube_of_the_thesis(scheme):
    """Section 5.1.2, figure 5.1a: 8 x 8, and |R|/8 + |S|/64 + |T|/8 = 0.266 H a machine."""
    p = problem(64, CHAIN)
    layout = fitted(scheme, p)
    assert shape(layout, p) == {"RS by y": 8, "ST by z": 8}
    assert heaviest(layout) == pytest.approx(H * (1 / 8 + 1 / 64 + 1 / 8))
    assert layout.shipped == pytest.approx([8 * H, H, 8 * H])


@pytest.mark.parametrize("skew", [None, SKEWED_Z])
def test_random_hypercube_of_the_thesis(skew):
    """Figure 5.1b: 4 x 4 x 4 and 0.75 H, whatever the rows hold."""
    p = problem(64, CHAIN, skew)
    layout = fitted("random", p)
    assert shape(layout, p) == {"R by row": 4, "S by row": 4, "T by row": 4}
    assert np.allclose(layout.predicted.rows_in, 0.75 * H)
    assert layout.shipped == pytest.approx([16 * H] * 3)


def test_hybrid_hypercube_of_the_thesis():
    """Figure 5.1d: z is skewed in S and T; y 9 parts, T 7 parts, (|R| + |S|)/9 + |T|/7 = 0.365 H and 23 H in all."""
    p = problem(64, CHAIN, SKEWED_Z)
    layout = fitted("hybrid", p)
    assert shape(layout, p) == {"RS by y": 9, "T by row": 7}
    assert heaviest(layout) == pytest.approx(H * (2 / 9 + 1 / 7)) == pytest.approx(0.365 * H, rel=1e-3)
    assert layout.shipped == pytest.approx([7 * H, 7 * H, 9 * H]) and layout.shipped.sum() == pytest.approx(23 * H)


def test_hash_hypercube_suffers_from_skew():
    """Figure 5.1c: 0.69 H when the top value has half of the rows; with Zipf 2 it has 0.61 of them."""
    p = problem(64, CHAIN, SKEWED_Z)
    layout = fitted("hash", p)
    assert shape(layout, p) == {"RS by y": 8, "ST by z": 8}
    least = H * (1 / 8 + ZIPF_2[0] / 8 + ZIPF_2[0])
    assert least <= heaviest(layout) < 1.25 * least


def test_per_value_goes_beyond_the_hybrid():
    """A hot z has a block of its own: the rest of S and T is hashed by it, as if nothing had been hot."""
    p = problem(64, CHAIN, SKEWED_Z)
    hybrid, layout = fitted("hybrid", p), fitted("per_value", p)
    assert len(layout.blocks) > 1 and len(layout.heavy[1]) > 0 == len(layout.heavy[0])
    assert heaviest(layout) < 0.95 * heaviest(hybrid)
    assert layout.shipped.sum() < 0.9 * hybrid.shipped.sum()
    light = next(b for b in layout.blocks if not any(b.pattern))
    assert any(d.source == 1 for d in light.dimensions)
    for block in layout.blocks:
        if block.pattern[1]:
            assert all(d.source != 1 for d in block.dimensions)


@pytest.mark.parametrize("scheme", ["hash", "hybrid", "per_value"])
def test_reachability_in_three_steps(scheme):
    """Section 5.5.2: 36 joiners are 6 x 6, and 6 + 1 + 6 = 13 relations are shipped."""
    p = problem(36, CHAIN)
    layout = fitted(scheme, p)
    assert shape(layout, p) == {"RS by y": 6, "ST by z": 6}
    assert layout.shipped.sum() == pytest.approx(13 * H)


INEQUALITY = {"R": "x", "S": "x", "T": "y"}  # R.x = S.x AND S.x < T.y: an inequality makes y an attribute by itself


@pytest.mark.parametrize("scheme", ["hash", "hybrid", "per_value"])
def test_an_inequality(scheme):
    """Section 5.2: dimensions x and y; hashing by y spreads T as well as anything, and needs no row numbers."""
    p = problem(64, INEQUALITY, unshared="y")
    layout = fitted(scheme, p)
    assert shape(layout, p) == {"RS by x": 9, "T by y": 7}
    assert not any(layout.uses_rows(i) for i in range(3))


def test_an_inequality_over_a_skewed_column():
    """T.y skewed: T is spread row by row, R and S are hashed as before."""
    p = problem(64, INEQUALITY, {"Ty": ZIPF_2}, unshared="y")
    assert shape(fitted("hybrid", p), p) == {"RS by x": 9, "T by row": 7}


def test_skew_in_one_relation_of_an_equality():
    """S.x skewed: S leaves the dimension of x, which R alone keeps; R and T are hashed, S is spread.

    With H rows each and 64 workers all three dimensions have four parts, and a cell 0.75 H. Hashing R and S together
    by x would put 0.61 of S in one cell. Random-Hypercube is as even: the thesis hashes what may be hashed.
    """
    p = problem(64, INEQUALITY, {"Sx": ZIPF_2}, unshared="y")
    layout = fitted("hybrid", p)
    assert heaviest(layout) == pytest.approx(0.75 * H)
    assert sorted(shape(layout, p).values()) == [4, 4, 4] and layout.uses_rows(1)


def test_what_may_be_hashed_is_hashed():
    p = problem(64, INEQUALITY, {"Sx": ZIPF_2}, unshared="y")
    assert shape(fitted("hybrid", p), p) == {"R by x": 4, "S by row": 4, "T by y": 4}


def test_a_relation_leaves_a_skewed_attribute_to_the_others():
    """Section 5.2: R(x, y, z), S(y, z), T(z, t), z skewed in T alone: R and S share a dimension, T has its own."""
    p = problem(64, {"R": "yz", "S": "yz", "T": "z"}, {"Tz": ZIPF_2})
    found = shape(fitted("hybrid", p), p)
    assert found.pop("T by row") == 7
    assert found in ({"RS by z": 9}, {"RS by y": 9})


def test_a_skewed_attribute_between_two_even_ones():
    """R(x, y), S(y, z), T(z, t), U(t), z skewed: y and t divide all four relations, and z nothing."""
    p = problem(64, {"R": "y", "S": "yz", "T": "zt", "U": "t"}, SKEWED_Z)
    layout = fitted("hybrid", p)
    assert shape(layout, p) == {"RS by y": 8, "TU by t": 8}
    assert heaviest(layout) == pytest.approx(4 * H / 8)


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("workers", [2, 3, 5, 7, 11])
def test_few_workers_are_used(scheme, workers):
    """Three equal dimensions of 7 ** (1/3) parts each would be rounded to one cell."""
    p = problem(workers, {"R": "x", "S": "y", "T": "z"}, unshared="xyz")
    layout = fitted(scheme, p)
    assert 1 < sum(len(b.cells) for b in layout.blocks) <= workers
    assert heaviest(layout) < 3 * H
    if workers == 7:
        assert heaviest(layout) == pytest.approx(H * (1 + 1 / 2 + 1 / 3))


@pytest.mark.parametrize("skew", [None, {"Fa": ZIPF_2}])
@pytest.mark.parametrize("scheme", ["random", "hybrid", "per_value"])
def test_a_star_schema(scheme, skew):
    """Section 5.1.3: the fact table is divided, small tables are copied; a hot value of the fact changes nothing."""
    p = problem(64, {"F": "abc", "A": "a", "B": "b", "C": "c"}, skew, {"A": 100.0, "B": 50.0, "C": 10.0})
    layout = fitted(scheme, p)
    assert layout.shipped[0] == pytest.approx(H)
    assert heaviest(layout) <= 1.02 * H / 64
    assert layout.predicted.replication < 1.02


def test_a_star_schema_spread_row_by_row():
    p = problem(64, {"F": "abc", "A": "a", "B": "b", "C": "c"}, None, {"A": 100.0, "B": 50.0, "C": 10.0})
    layout = fitted("random", p)
    assert shape(layout, p) == {"F by row": 64}
    assert layout.shipped == pytest.approx([H, 6400, 3200, 640])


@pytest.mark.parametrize("scheme", ["hash", "hybrid", "per_value"])
def test_relations_on_one_key_are_not_copied(scheme):
    p = problem(64, {"R": "x", "S": "x", "T": "x"}, None, {"S": H / 3, "T": H / 10})
    layout = fitted(scheme, p)
    assert shape(layout, p) == {"RST by x": 64}
    assert layout.predicted.replication == pytest.approx(1.0)


@pytest.mark.parametrize("scheme", ["hash", "hybrid", "per_value"])
@pytest.mark.parametrize(("tiny", "expected"), [("T", {"RS by y": 64}), ("R", {"ST by z": 64})])
def test_a_tiny_relation_makes_the_cube_one_dimensional(scheme, tiny, expected):
    p = problem(64, CHAIN, None, {tiny: 5.0})
    assert shape(fitted(scheme, p), p) == expected


def test_few_distinct_values_count_as_skew():
    """Three values of z cannot fill eight parts: z is left to rows, though no value is more frequent than another."""
    few = np.full(3, 1 / 3)
    p = problem(64, CHAIN, {"Sz": few, "Tz": few})
    assert shape(fitted("hybrid", p), p) == {"RS by y": 9, "T by row": 7}


def test_a_relation_that_nothing_divides_is_spread():
    p = problem(16, {"R": "x", "S": "x", "T": ""})
    for scheme in ("hash", "hybrid", "per_value"):
        layout = fitted(scheme, p)
        assert "T by row" in shape(layout, p) and layout.uses_rows(2)


def tpch9(workers, parts=6_000, lines=180_000):
    """LINEITEM with Zipf 2 in partkey, PARTSUPP and PART: four suppliers a part, so partkey and suppkey go together."""
    rng = np.random.default_rng(1)
    part, of = np.repeat(np.arange(parts), 4), np.tile(np.arange(4), parts)
    bought = rng.choice(parts, lines, p=zipf(parts, 2.0))

    def supplier(part, of):
        return mixed((part + 251 * of) % 1000 + 10**9)

    columns = [
        np.stack([mixed(bought), supplier(bought, rng.integers(0, 4, lines))], axis=1),
        np.stack([mixed(part), supplier(part, of)], axis=1),
        mixed(np.arange(parts))[:, None],
    ]
    attributes = (Attribute("partkey", {0: "p", 1: "p", 2: "p"}), Attribute("suppkey", {0: "s", 1: "s"}))
    groups = tuple(KeyGroups.from_sample(float(len(c)), tuple(range(c.shape[1])), c) for c in columns)
    return CubeProblem(Query(("L", "PS", "P"), attributes), groups, workers)


@pytest.mark.parametrize(
    "workers",
    [
        8,
        64,
    ],
)
def test_tpch9_partial(workers):
    """Section 5.5.3, table 5.2: hash-hypercube leaves the hottest part in one region."""
    p = tpch9(workers)
    hashed, layout = fitted("hash", p), fitted("per_value", p)
    assert heaviest(layout) <= 0.6 * heaviest(hashed)
    assert layout.predicted.replication <= 1.2 + 1e-9
    assert heaviest(layout) <= heaviest(fitted("hybrid", p))


def any_problem(seed):
    """Two to five relations that attributes connect, with values from even to Zipf 2 and from two to 5,000."""
    rng = np.random.default_rng(seed)
    relations, letters = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    members = [set() for _ in range(relations)]
    for i in range(1, relations):
        a = int(rng.integers(letters))
        members[i].add(a)
        members[int(rng.integers(i))].add(a)
    for _ in range(int(rng.integers(3))):
        members[int(rng.integers(relations))].add(int(rng.integers(letters)))
    used = sorted(set().union(*members))
    hashes = {a: rng.integers(-(2**62), 2**62, 5000) for a in used}
    groups = []
    for mine in members:
        rows, columns = int(10 ** rng.uniform(2, 4.5)), []
        for a in sorted(mine):
            values, exponent = int(rng.choice([2, 20, 500, 5000])), rng.choice([0, 0, 0.5, 1, 2])
            columns.append(hashes[a][rng.choice(values, rows, p=zipf(values, exponent))])
        mine = tuple(used.index(a) for a in sorted(mine))
        groups.append(KeyGroups.from_sample(float(rows), mine, np.stack(columns, axis=1)))
    attributes = tuple(Attribute(f"a{a}", {i: f"c{a}" for i, mine in enumerate(members) if a in mine}) for a in used)
    query = Query(tuple(f"R{i}" for i in range(relations)), attributes)
    return CubeProblem(query, tuple(groups), int(rng.choice([2, 7, 16, 64])))


@pytest.mark.parametrize("seed", [*range(24), 152, 172])
def test_never_worse_than_hash_or_random(seed):
    p = any_problem(seed)
    best = min(heaviest(fitted(s, p)) for s in ("hash", "random"))
    for scheme in ("hybrid", "per_value"):
        assert heaviest(fitted(scheme, p)) <= 1.05 * best


@pytest.mark.parametrize("scheme", NAMES)
def test_empty_relations(scheme):
    p = problem(8, CHAIN, None, {"R": 0.0, "S": 0.0, "T": 0.0})
    assert heaviest(fitted(scheme, p)) == 0
    layout = fitted(scheme, problem(8, CHAIN, None, {"T": 0.0}))
    assert heaviest(layout) <= 0.75 * H


@pytest.mark.parametrize("scheme", NAMES)
def test_one_worker_has_all_rows(scheme):
    layout = fitted(scheme, problem(1, CHAIN, SKEWED_Z))
    assert layout.predicted.rows_in.tolist() == pytest.approx([3 * H])


def test_pack():
    assert pack(np.array([1.0, 5.0, 3.0, 2.0]), 2).tolist() == [0, 0, 1, 1]
    assert pack(np.array([4.0, 4.0]), 5).tolist() == [0, 1]
    assert pack(np.empty(0), 3).tolist() == []
    loads = np.random.default_rng(0).pareto(1.5, 500)
    regions = np.bincount(pack(loads, 16), loads, 16)
    assert regions.max() <= max(loads.max(), loads.sum() / 16 * 4 / 3)


def test_the_number_of_a_cell_says_where_it_runs():
    """More cells than regions: number % workers is the region whose load the cell is part of."""
    p = problem(64, CHAIN, SKEWED_Z)
    layout = fitted("per_value", p)
    numbers = np.concatenate([b.cells for b in layout.blocks])
    assert len(layout.blocks) > 1
    for region in range(64):
        mine = np.sort(numbers[numbers % 64 == region])
        assert (mine // 64).tolist() == list(range(len(mine)))


def test_a_single_cube_is_numbered_through():
    (block,) = fitted("hash", problem(64, CHAIN)).blocks
    assert block.cells.tolist() == list(range(64))


def test_the_registry():
    assert NAMES == ["hash", "random", "hybrid", "per_value"]
    assert all(cube_named(c.name) is c and c.summary for c in CUBES)
