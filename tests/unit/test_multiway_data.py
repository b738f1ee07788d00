"""Unit, on small shapes and against oracles written from scratch: the data of the benchmark `multiway`."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks.workloads.multiway_data import (
    HOT,
    REACH,
    TRIANGLES,
    graph,
    graph_statistics,
    task_count,
    tpch9,
    web_analytics,
)

MAKERS = {
    "graph": lambda folder, seed: graph(folder, edges=3_000, nodes=600, exponent=0.85, seed=seed),
    "tpch9": lambda folder, seed: tpch9(folder, scale=0.025, seed=seed),
    "web_analytics": lambda folder, seed: web_analytics(folder, arcs_in=60, seed=seed),
    "task_count": lambda folder, seed: task_count(folder, failed=6_000, seed=seed),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("multiway")


def tables(paths):
    return {name: pq.read_table(path) for name, path in paths.items()}


def columns(paths):
    return {name: {c: t[c].to_numpy() for c in t.column_names} for name, t in tables(paths).items()}


@pytest.mark.parametrize("name", MAKERS)
def test_the_seed_decides_every_byte(name, folder, tmp_path):
    first, again, other = MAKERS[name](folder, 1), MAKERS[name](tmp_path, 1), MAKERS[name](tmp_path, 2)
    assert list(first) == list(again)
    for table, path in first.items():
        files = sorted(p.name for p in path.iterdir())
        assert files == ["0.parquet", "1.parquet", "2.parquet", "3.parquet"]
        for file in files:
            assert (path / file).read_bytes() == (again[table] / file).read_bytes()
            assert pq.ParquetFile(path / file).num_row_groups == 2
    assert any(not t.equals(u) for t, u in zip(tables(first).values(), tables(other).values(), strict=True))


@pytest.mark.parametrize("name", MAKERS)
def test_a_second_call_reuses_what_is_there(name, tmp_path):
    first = MAKERS[name](tmp_path, 1)
    written = {f: f.stat().st_mtime_ns for p in first.values() for f in p.iterdir()}
    assert MAKERS[name](tmp_path, 1) == first
    assert {f: f.stat().st_mtime_ns for p in first.values() for f in p.iterdir()} == written


@pytest.mark.parametrize("name", MAKERS)
def test_a_run_that_was_cut_short_is_made_whole(name, tmp_path):
    whole = tables(MAKERS[name](tmp_path, 1))
    *_, last = MAKERS[name](tmp_path, 1).values()
    last.rename(last.with_suffix(".part"))
    (last.with_suffix(".part") / "3.parquet").unlink()
    assert all(t.equals(whole[n]) for n, t in tables(MAKERS[name](tmp_path, 1)).items())


def test_a_graph_has_no_loops_and_no_doubles(folder):
    edges = columns(MAKERS["graph"](folder, 1))["edges"]
    src, dst = edges["src"], edges["dst"]
    assert src.dtype == dst.dtype == np.int64
    assert len(src) == 3_000 == len(set(zip(src.tolist(), dst.tolist(), strict=True)))
    assert (src != dst).all()
    assert src.min() >= 0 and dst.min() >= 0 and max(src.max(), dst.max()) < 600


def test_hubs_are_scattered_over_the_ids_and_lean_the_same_way(folder):
    edges = columns(graph(folder, edges=20_000, nodes=4_000, exponent=0.85))["edges"]
    out, into = (np.bincount(edges[c], minlength=4_000) for c in ("src", "dst"))
    for degree in (out, into):
        hubs = np.sort(np.argsort(degree)[-10:])
        assert degree[hubs].sum() > 10 * 20 * degree.mean()
        assert np.diff(hubs).max() > 1 and hubs[-1] - hubs[0] > 1_000
    assert 0.2 < np.corrcoef(out, into)[0, 1] < 0.95


def test_statistics_of_a_graph_against_following_every_path(folder):
    paths = MAKERS["graph"](folder, 1)
    edges = columns(paths)["edges"]
    pairs = list(zip(edges["src"].tolist(), edges["dst"].tolist(), strict=True))
    to, into = defaultdict(set), Counter(b for _, b in pairs)
    for a, b in pairs:
        to[a].add(b)
    found = graph_statistics(paths["edges"])
    assert found["two_paths"] == sum(1 for _, b in pairs for _ in to[b])
    assert found["three_paths"] == sum(len(to[c]) for _, b in pairs for c in to[b])
    assert found["shorter_lists"] == sum(min(len(to[b]), into[a]) for a, b in pairs)
    assert found["triangles"] * 3 == sum(a in to[c] for a, b in pairs for c in to[b])
    assert found["triangles"] > 0
    assert found["heaviest_out"] == max(map(len, to.values()))
    assert found["nodes"] == len({n for pair in pairs for n in pair})


def test_a_graph_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="100 edges do not fit 10 nodes"):
        graph(tmp_path, edges=100, nodes=10)


def test_the_settings_differ_in_skew_alone():
    assert REACH.keys() == TRIANGLES.keys() == {"edges", "nodes", "exponent"}
    assert REACH["exponent"] < TRIANGLES["exponent"]
    assert REACH["edges"] == TRIANGLES["edges"] == 1_000_000


def test_every_line_has_its_part_and_one_of_its_suppliers(folder):
    found = columns(MAKERS["tpch9"](folder, 1))
    line, offer, part = found["lineitem"], found["partsupp"], found["part"]
    assert (len(line["l_partkey"]), len(offer["ps_partkey"]), len(part["p_partkey"])) == (150_030, 20_000, 5_000)
    offers = list(zip(offer["ps_partkey"].tolist(), offer["ps_suppkey"].tolist(), strict=True))
    assert len(set(offers)) == len(offers)
    assert set(Counter(p for p, _ in offers).values()) == {4}
    assert {s for _, s in offers} == set(range(1, 251))
    assert set(zip(line["l_partkey"].tolist(), line["l_suppkey"].tolist(), strict=True)) <= set(offers)
    assert part["p_partkey"].tolist() == list(range(1, 5_001))
    hottest = Counter(line["l_partkey"].tolist()).most_common(2)
    assert [n / 150_030 for _, n in hottest] == pytest.approx([0.608, 0.152], abs=0.01)
    of_order = Counter(line["l_orderkey"].tolist())
    assert max(of_order.values()) == 7 and len(of_order) == pytest.approx(150_030 / 4, rel=0.02)


def test_a_scale_too_small_for_four_suppliers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"scale 0\.01 leaves too few suppliers"):
        tpch9(tmp_path, scale=0.01)


def test_selections_on_the_hot_url_leave_w1_and_w2(folder):
    found = columns(MAKERS["web_analytics"](folder, 1))
    w, w1, w2, c = (found[n] for n in ("w", "w1", "w2", "c"))
    assert [len(next(iter(t.values()))) for t in (w, w1, w2, c)] == [36_291, 60, 227, 2_505]
    arcs = list(zip(w["src"], w["dst"], strict=True))
    assert len(set(arcs)) == len(arcs) and all(a != b for a, b in arcs)
    assert [a for a in arcs if a[1] == HOT] == list(zip(w1["src"], w1["dst"], strict=True))
    assert [a for a in arcs if a[0] == HOT] == list(zip(w2["src"], w2["dst"], strict=True))
    assert len(set(c["url"])) == len(c["url"])
    assert {u for arc in arcs for u in arc} <= set(c["url"])


def test_events_meet_their_jobs_and_machines(folder):
    found = columns(MAKERS["task_count"](folder, 1))
    job, task, machine = (found[f"{n}_events"] for n in ("job", "task", "machine"))
    failed = task["event_type"] == "FAIL"
    assert (len(failed), failed.sum()) == (8_000, 6_000)
    assert len(job["job_id"]) + len(machine["machine_id"]) == pytest.approx(0.145 * 6_000, abs=3)
    for key, events in (("job_id", job), ("machine_id", machine)):
        assert set(Counter(events[key].tolist()).values()) == {3}
        assert set(task[key].tolist()) <= set(events[key].tolist())
    assert max(Counter(task["job_id"][failed].tolist()).values()) < 0.05 * 6_000
    platforms = set(zip(machine["machine_id"].tolist(), machine["platform"], strict=True))
    assert len(platforms) == len(set(machine["machine_id"].tolist()))
