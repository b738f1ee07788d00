"""Against numbers worked out by hand or printed in the paper: layouts, pairs, metadata. No Spark."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel import EvenkeelError
from evenkeel.bucketed.columns import result_columns
from evenkeel.bucketed.layout import (
    CELLS,
    COUNTS,
    Shards,
    break_even,
    bucket_rows,
    cells_for,
    choose_buckets,
    parse_buckets,
    parse_size,
    plan_layout,
)
from evenkeel.bucketed.metadata import NULL_BUCKET, DataFile, HotKey, KeyColumn, TableMeta
from evenkeel.bucketed.native import partitions
from evenkeel.bucketed.pair import pack, pairs, resolve
from evenkeel.errors import BrokenTable, IncompatibleTables, UnusableBuckets
from evenkeel.types import preserved

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": n, "type": "long"} for n in ("k", "n")]})
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def meta(buckets, shards=None, nulls=0, side="t", **changes):
    """One file a shard; `shards` gives sizes by bucket, 100 bytes a bucket otherwise."""
    files = []
    for b in range(buckets):
        for s, size in enumerate((shards or {}).get(b, [100])):
            files.append(DataFile(f"{side}/{b}/{s}", b, s, size, size, size // 4, 7))
    files += [DataFile(f"{side}/null/{i}", NULL_BUCKET, i, 5, 5, 1, None) for i in range(nulls)]
    return TableMeta((KeyColumn("k", "bigint"),), buckets, 1000, SCHEMA, tuple(files), **changes)


def test_common_factor_of_4_and_6():
    """The paper's figure 2."""
    found = pairs(4, 6)
    assert len(found) == 12 and all(i % 2 == j % 2 for i, j in found)
    assert resolve(meta(4, side="l"), meta(6, side="r"), "inner").common_factor == 2


@given(h=st.integers(0, 2**31), left=st.integers(1, 40), right=st.integers(1, 40))
def test_equal_hashes_meet(h, left, right):
    assert (h % left, h % right) in pairs(left, right)
    assert len(pairs(left, right)) == left * right // math.gcd(left, right)


def test_break_even():
    """Formula (1) with table I of the paper, then what cannot pay."""
    assert break_even(23.644 + 423.159, 349.42, 72.767) == 2
    assert break_even(11810 + 845, 6576, 2974) == 4
    assert break_even(92.573, 161.499, 21.654) == 1
    assert break_even(10.0, 5.0, 5.0) is None


def test_counts_share_a_large_factor():
    assert all(CELLS % n == 0 for n in COUNTS)
    for a in COUNTS:
        for b in COUNTS:
            assert math.gcd(a, b) * 3 >= min(a, b)


def test_buckets_follow_from_size():
    even = np.full(CELLS, 10, dtype=np.int64)
    size = int(even.sum()) * 100 // 96
    assert choose_buckets(even, 100.0, size + 1) == 96
    assert choose_buckets(even, 100.0, 100 * size) == 64, "small tables share one count"
    assert choose_buckets(even // 10, 100.0, 100 * size) == 64 and choose_buckets(even[:3072], 1.0, 10**9) == 32
    hot = even.copy()
    hot[17] += int(even.sum())  # one key as large as all others: shards, not buckets
    assert choose_buckets(hot, 100.0, size + 1) in (96, 128)
    rows = bucket_rows(hot, 96)
    layout = plan_layout(rows, 0, 100.0, size + 1)
    assert layout.shards == {17: Shards(1, 97)}, "shard 0 is for whole buckets"
    assert rows.sum() == hot.sum()
    assert choose_buckets(np.zeros(CELLS, dtype=np.int64), 100.0, 1000) == 1
    assert cells_for(7, 1e12, 10) == 7 and cells_for(None, None, 10) == CELLS
    assert cells_for(None, 1e3, 1000) == 3072 and cells_for(None, 1e5, 1000) == 6144
    assert cells_for(None, 1e15, 1000) == CELLS


@given(
    sizes=st.lists(st.integers(0, 500), min_size=1, max_size=12),
    nulls=st.integers(0, 400),
    limit=st.integers(20, 200),
)
def test_shards_stay_below_the_limit(sizes, nulls, limit):
    layout = plan_layout(np.array(sizes), nulls, 1.0, limit)
    for b, rows in [*enumerate(sizes), (NULL_BUCKET, nulls)]:
        assert rows / layout.shards.get(b, Shards(0, 1)).count <= limit
    units = layout.units()
    assert len(set(units)) == len(units) and {b for b, _ in units} == {*range(len(sizes)), NULL_BUCKET}


def test_shards_are_tasks_like_those_of_whole_buckets():
    rows = np.array([60, 60, 60, 60, 90, 1000])
    layout = plan_layout(rows, 0, 1.0, 100)
    assert layout.shards == {4: Shards(1, 2), 5: Shards(1, 13)}, "1.25 x the mean of 66 at most"
    assert plan_layout(rows[:5], 0, 1.0, 100).shards == {}, "nothing is too large: nothing is cut"
    assert plan_layout(np.array([10, 10, 1000]), 0, 1.0, 100).shards == {2: Shards(1, 20)}, "half the limit at least"
    assert plan_layout(np.array([1000]), 0, 1.0, 100).shards == {0: Shards(1, 10)}


def test_appended_rows_go_beside_or_apart():
    old = meta(2, {0: [90], 1: [40]})
    layout = plan_layout(np.array([50, 50]), 0, 1.0, 100, old)
    assert layout.shards == {0: Shards(1, 1)}, "bucket 0 has no room, bucket 1 has"
    assert layout.units() == [(0, 1), (1, 0), (NULL_BUCKET, 0)]


@given(
    left=st.tuples(st.integers(1, 6), st.dictionaries(st.integers(0, 5), st.lists(st.integers(1, 99), max_size=4))),
    right=st.tuples(st.integers(1, 6), st.dictionaries(st.integers(0, 5), st.lists(st.integers(1, 99), max_size=4))),
    how=st.sampled_from(HOWS),
)
def test_every_pair_once_every_row_judged_once(left, right, how):
    """The invariant of `pair.py`, counted on the tasks themselves."""
    metas = {"left": meta(*left, nulls=1, side="l"), "right": meta(*right, nulls=1, side="r")}
    plan = resolve(metas["left"], metas["right"], how, parallelism=3)
    met: dict[tuple[str, str], int] = {}
    judged: dict[str, int] = {}
    for t in plan.tasks:
        mine = t.driver[0].path
        theirs = [u[0].path for u in t.partners]
        if t.mode in ("inner", "outer"):
            for other in theirs:
                pair = (mine, other) if t.drive == "left" else (other, mine)
                met[pair] = met.get(pair, 0) + 1
        if t.mode != "inner":
            judged[mine] = judged.get(mine, 0) + 1
            meets = _partners(metas, t.drive, t.driver[0].bucket)
            assert set(theirs) == meets, "a row is judged by all it could match"
    wanted = {(a.path, b) for a in metas["left"].files for b in _partners(metas, "left", a.bucket)}
    assert met == ({} if how in ("left_semi", "left_anti") else dict.fromkeys(wanted, 1))
    for side in ("left", "right"):
        for f in metas[side].files:
            times = judged.get(f.path, 0)
            if side not in preserved(how):
                assert times == 0
            elif how == "left_semi" and (f.bucket == NULL_BUCKET or not _partners(metas, side, f.bucket)):
                assert times <= 1
            else:
                assert times == 1
    assert sorted(map(id, (t for p in plan.partitions for t in p))) == sorted(map(id, plan.tasks))
    assert plan.replicated_bytes >= 0


def _partners(metas, side, bucket):
    if bucket == NULL_BUCKET:
        return set()
    theirs = metas["right" if side == "left" else "left"]
    c = math.gcd(metas["left"].buckets, metas["right"].buckets)
    return {f.path for f in theirs.files if f.bucket != NULL_BUCKET and f.bucket % c == bucket % c}


def test_the_smaller_side_is_replicated():
    hot = meta(1, {0: [1_000_000] * 5}, side="l")
    plan = resolve(hot, meta(1, side="r"), "inner")
    assert [t.drive for t in plan.tasks] == ["left"] * 5 and plan.replicated_bytes == 400
    both = resolve(hot, meta(1, {0: [900_000] * 4}, side="r"), "full")
    assert sum(t.mode == "inner" for t in both.tasks) == 20, "crossed: no task holds more than a pair"
    assert sum(t.mode == "anti" for t in both.tasks) == 9


def test_longest_first_and_small_ones_together():
    plan = resolve(meta(64, side="l"), meta(64, {3: [9_000_000]}, side="r"), "inner", parallelism=2)
    assert len(plan.partitions) == 2 and len(plan.partitions[0]) < len(plan.partitions[1])
    assert pack((), 4) == ()


def test_metadata_round_trip_and_damage():
    made = meta(3, nulls=1, hot_keys=(HotKey(("7", None), 12),), retired=("data-0",), generation=4)
    text = made.to_json()
    assert TableMeta.from_json(text, "t") == made
    assert TableMeta.from_json(json.dumps(json.loads(text)), "t") == made, "layout of the JSON is free"
    for at in range(len(text)):
        flipped = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        try:
            same = TableMeta.from_json(flipped, "here/_evenkeel.json")
        except BrokenTable as error:
            assert "here/_evenkeel.json" in str(error) and "Hint:" in str(error)
        else:
            assert same == made, f"a flipped character at {at} went unnoticed"
    future = json.loads(text)
    future["table"]["format"] = 99
    with pytest.raises(BrokenTable):
        TableMeta.from_json(json.dumps(future), "t")


def test_compatibility():
    made = meta(4)
    assert made.is_compatible_with(meta(6))
    for other, says in (
        (meta(4, hash_version=2), "hash"),
        (TableMeta((KeyColumn("k", "int"),), 4, 0, SCHEMA, ()), "(bigint) and (int)"),
        (TableMeta((KeyColumn("a", "int"), KeyColumn("b", "int")), 4, 0, SCHEMA, ()), "(a, b)"),
    ):
        assert not made.is_compatible_with(other)
        with pytest.raises(IncompatibleTables, match="Hint") as error:
            made.require_compatible(other, "lake/a", "lake/b")
        assert says in str(error.value) and "lake/b" in str(error.value)


def test_columns_of_the_result():
    shown = [c.name for c in result_columns(meta(1), meta(1), "inner", ("", "_r"))]
    assert shown == ["k", "n", "n_r"]
    assert [c.name for c in result_columns(meta(1), meta(1), "left_anti", ("", "_r"))] == ["k", "n"]
    assert [c.name for c in result_columns(meta(1), meta(1), "left", ("", "_r"), ("n_r",))] == ["n_r"]
    for suffixes, wanted in ((("", ""), None), (("", "_r"), ("m",))):
        with pytest.raises(EvenkeelError):
            result_columns(meta(1), meta(1), "inner", suffixes, wanted)


@pytest.mark.parametrize(("text", "size"), [("256MB", 256_000_000), ("1 GiB", 2**30), ("64m", 2**26), (7, 7)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("bad", ["", "MB", "-1MB", 0, -5, True, None, "12 parsecs"])
def test_bad_sizes_and_counts(bad):
    with pytest.raises(UnusableBuckets, match="Hint"):
        parse_size(bad)
    with pytest.raises(UnusableBuckets, match="Hint"):
        parse_buckets(bad)


@given(loads=st.dictionaries(st.integers(0, 31), st.integers(1, 50), max_size=8))
def test_layers_are_cut_into_few_runs(loads):
    count = partitions(loads, 32, 50)
    assert 1 <= count <= 32 and count <= max(1, 3 * len(loads))
    assert partitions({3: 20, 4: 25}, 32, 50) == 1 and partitions({3: 40, 20: 25}, 32, 50) == 2
