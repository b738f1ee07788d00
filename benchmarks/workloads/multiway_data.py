"""The data of `multiway`: the relations of Squall's section 5.5, drawn by seed at a size that one machine can join.

Every function writes the tables of one query below a folder, each as four Parquet files of two row groups, and returns
where they are by name. The name of the folder tells sizes and seed, so a second call finds what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenkeel.testing import zipf_keys

SEED = 20160915
FILES = 4
SCATTER = 1.5
"""How far a node's rank by in-degree strays from its rank by out-degree, as a deviation of the rank's logarithm."""

REACH: dict[str, Any] = {"edges": 1_000_000, "nodes": 200_000, "exponent": 0.5}
"""For 3-reachability: the 2-paths are 12.7 times the edges, as in the thesis (130M over 10.2M).

Counted: 1,000,000 edges among 199,744 nodes, degrees up to 1,100 out and 1,097 in (correlation 0.64), 12,650,151
2-paths, 157,175,101 3-paths, 3,921,231 in the shorter lists, 626 triangles.
"""

TRIANGLES: dict[str, Any] = {"edges": 1_000_000, "nodes": 200_000, "exponent": 0.85}
"""For triangles: a pipeline that joins two edges first drowns in paths through hubs.

Counted: 1,000,000 edges among 192,310 nodes, degrees up to 17,394 out and 17,628 in (correlation 0.57), 459,688,435
2-paths, 16,840,422 in the shorter lists (27 times less), 640,130 triangles.
"""

HOT = "blogspot.com"
COLOURS = ("almond", "azure", "beige", "blue", "coral", "cream", "cyan", "forest", "green", "ivory", "khaki", "lace")
PLATFORMS = ("haswell", "ivybridge", "sandybridge", "westmere")


def _stored(folder: Path, names: tuple[str, ...], make: Callable[[], dict[str, pa.Table]]) -> dict[str, Path]:
    paths = {name: folder / name for name in names}
    if not all(path.exists() for path in paths.values()):
        for name, table in make().items():
            _write(paths[name], table)
    return paths


def _write(path: Path, table: pa.Table) -> None:
    if path.exists():
        return
    part = path.with_suffix(".part")  # renamed when whole, so a run that was cut short leaves nothing to be reused
    part.mkdir(parents=True, exist_ok=True)
    for i in range(FILES):
        start, end = i * len(table) // FILES, (i + 1) * len(table) // FILES
        half = max(1, -(-(end - start) // 2))
        pq.write_table(table.slice(start, end - start), part / f"{i}.parquet", row_group_size=half)
    part.rename(path)


def _zipf(rng: np.random.Generator, rows: int, keys: int, exponent: float) -> np.ndarray:
    return zipf_keys(rows, keys, exponent, int(rng.integers(2**32)))


def _taken(names: list[str] | tuple[str, ...], at: np.ndarray) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(at))


def graph(
    folder: Path, edges: int = 1_000_000, nodes: int = 200_000, exponent: float = 0.5, seed: int = SEED
) -> dict[str, Path]:
    """`edges`(src, dst): a directed power-law graph without loops or doubles, as `graph(folder, **REACH)`.

    The node at rank r, by out-degree or by in-degree, is drawn with probability proportional to r ** -exponent, so
    degrees follow a power law with exponent 1 + 1 / exponent. The two ranks of a node are near each other, as in web
    graphs, and its id tells neither.
    """

    def make() -> dict[str, pa.Table]:
        src, dst = _power_law(np.random.default_rng(seed), edges, nodes, exponent)
        return {"edges": pa.table({"src": src, "dst": dst})}

    return _stored(folder / f"graph-{edges}-{nodes}-{exponent:g}-{seed}", ("edges",), make)


def _power_law(rng: np.random.Generator, edges: int, nodes: int, exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends drawn independently by rank; loops and doubles are dropped and drawn anew."""
    if edges > nodes * (nodes - 1) // 4:
        raise ValueError(f"{edges:,} edges do not fit {nodes:,} nodes\n\nHint: give a quarter of all pairs at most.")
    by_out = rng.permutation(nodes)
    strayed = np.log(np.arange(1, nodes + 1)) + SCATTER * rng.standard_normal(nodes)
    by_in = by_out[np.argsort(strayed)]
    found = np.empty(0, dtype=np.int64)
    while len(found) < edges:
        draws = int(1.1 * (edges - len(found))) + 100
        src = by_out[_zipf(rng, draws, nodes, exponent)]
        dst = by_in[_zipf(rng, draws, nodes, exponent)]
        found = np.unique(np.concatenate([found, (src * nodes + dst)[src != dst]]))
    src, dst = np.divmod(rng.permutation(found)[:edges], nodes)
    return src, dst


def graph_statistics(path: Path) -> dict[str, float]:
    """What joins over a stored graph have to do, counted exactly.

    two_paths      rows of edges(a, b) join edges(b, c): the sum of in * out over the nodes
    three_paths    rows of 3-reachability before it counts: the sum of in(a) * out(b) over the edges (a, b)
    shorter_lists  candidates that a worst-case optimal join tries: the sum of min(out(b), in(a)) over the edges
    triangles      cycles a -> b -> c -> a, each once; the query over three copies of the edges gives three rows for one
    """
    table = pq.read_table(path)
    src, dst = table["src"].to_numpy(), table["dst"].to_numpy()
    nodes = int(max(src.max(), dst.max())) + 1
    out, into = np.bincount(src, minlength=nodes), np.bincount(dst, minlength=nodes)
    return {
        "edges": len(src),
        "nodes": int(np.count_nonzero(out + into)),
        "heaviest_out": int(out.max()),
        "heaviest_in": int(into.max()),
        "correlation": float(np.corrcoef(out, into)[0, 1]),
        "two_paths": int(np.sum(into * out)),
        "three_paths": int(np.sum(into[src] * out[dst])),
        "shorter_lists": int(np.sum(np.minimum(out[dst], into[src]))),
        "triangles": _triangles(src, dst, nodes),
    }


def _triangles(src: np.ndarray, dst: np.ndarray, nodes: int) -> int:
    """For every edge (a, b) look up each c of the shorter list, out of b or into a, in the edge that closes it."""
    codes = np.sort(src * nodes + dst)
    out, into = np.bincount(src, minlength=nodes), np.bincount(dst, minlength=nodes)
    by_out, by_in = dst[np.argsort(src, kind="stable")], src[np.argsort(dst, kind="stable")]
    forward = out[dst] <= into[src]
    found = 0
    for chosen, ends, degree, lists in ((forward, dst, out, by_out), (~forward, src, into, by_in)):
        first = np.cumsum(degree) - degree
        a, b, at = src[chosen], dst[chosen], ends[chosen]
        lengths = degree[at]
        chunks = np.searchsorted(np.cumsum(lengths), np.arange(0, lengths.sum(), 2_000_000))
        for start, end in zip(chunks, [*chunks[1:], len(at)], strict=True):
            n = lengths[start:end]
            edge = np.repeat(np.arange(start, end), n)
            within = np.arange(len(edge)) - np.repeat(np.cumsum(n) - n, n)
            c = lists[first[at[edge]] + within]
            wanted = c * nodes + a[edge] if degree is out else b[edge] * nodes + c
            place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
            found += int(np.count_nonzero(codes[place] == wanted))
    return found // 3


def tpch9(folder: Path, scale: float = 1, exponent: float = 2.0, seed: int = SEED) -> dict[str, Path]:
    """`lineitem`, `partsupp` and `part` as TPCH9-Partial reads them, with TPC-H's sizes and Zipf's law over the parts.

    A line orders the part at rank r with probability proportional to r ** -exponent, from any of its four suppliers,
    which TPC-H's formula (4.2.3) gives; so each line meets one row of `partsupp` and one of `part`.

    At scale 1: 6,001,215 lines of 1,500,232 orders, 800,000 rows in `partsupp`, 200,000 parts. The hottest part has
    60.8% of the lines and the next 15.2%; the four hottest suppliers have 15.2% each. The join gives a row a line.
    """
    lines, parts, suppliers = round(6_001_215 * scale), round(200_000 * scale), round(10_000 * scale)
    if suppliers <= 228:  # there the formula's step may reach a third of the suppliers, and the fourth is the first
        raise ValueError(f"scale {scale:g} leaves too few suppliers\n\nHint: 0.025 is the least.")

    def supplier(part: np.ndarray, which: np.ndarray) -> np.ndarray:
        return (part + which * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1

    def make() -> dict[str, pa.Table]:
        rng = np.random.default_rng(seed)
        order = np.repeat(np.arange(lines), rng.integers(1, 8, lines))[:lines]
        l_part = (rng.permutation(parts) + 1)[_zipf(rng, lines, parts, exponent)]
        quantity = rng.integers(1, 51, lines)
        cents = 90_000 + l_part // 10 % 20_001 + 100 * (l_part % 1000)
        lineitem = {
            "l_orderkey": order // 8 * 32 + order % 8 + 1,  # TPC-H uses 8 of every 32 keys
            "l_partkey": l_part,
            "l_suppkey": supplier(l_part, rng.integers(0, 4, lines)),
            "l_quantity": quantity,
            "l_extendedprice": quantity * cents / 100,
        }
        part = np.arange(1, parts + 1)
        ps_part, which = np.repeat(part, 4), np.tile(np.arange(4), parts)
        partsupp = {
            "ps_partkey": ps_part,
            "ps_suppkey": supplier(ps_part, which),
            "ps_supplycost": rng.integers(100, 100_001, 4 * parts) / 100,
            "ps_availqty": rng.integers(1, 10_000, 4 * parts),
        }
        names = [f"{a} {b}" for a in COLOURS for b in COLOURS if a != b]
        named = {"p_partkey": part, "p_name": _taken(names, rng.integers(0, len(names), parts))}
        return {"lineitem": pa.table(lineitem), "partsupp": pa.table(partsupp), "part": pa.table(named)}

    return _stored(folder / f"tpch9-{scale:g}-{exponent:g}-{seed}", ("lineitem", "partsupp", "part"), make)


def web_analytics(folder: Path, arcs_in: int = 7_000, seed: int = SEED) -> dict[str, Path]:
    """`w`(src, dst) and `c`(url, score), and what the selections on 'blogspot.com' leave of `w`: `w1` and `w2`.

    The thesis has 623M arcs in W, 1.03M in W1 (dst is hot), 3.9M in W2 (src is hot) and 43M pages in C. Every arc of
    W1 meets every arc of W2 and one page, so the result is |W1| * |W2|: 4e12 there, too many for one machine. The
    sizes keep the ratio 623 : 1.03 : 3.9 : 43 and are scaled by W1, 7,000 arcs, to 1.9e8 results. Every url of W is
    a page of C, and no page is there twice. The hot url has the most arcs, in and out; the rest follow a power law.

    At full size: 4,233,981 arcs in W, 7,000 in W1, 26,505 in W2, 292,233 pages, 185,535,000 results.
    """
    arcs, arcs_out, pages = (round(arcs_in * n / 1.03) for n in (623, 3.9, 43))

    def make() -> dict[str, pa.Table]:
        rng = np.random.default_rng(seed)
        names = [HOT, *(f"host{n:06d}.com" for n in range(1, pages))]
        to_hot, from_hot = (1 + rng.permutation(pages - 1)[:n] for n in (arcs_in, arcs_out))
        src, dst = _power_law(rng, arcs - arcs_in - arcs_out, pages - 1, 0.5)
        zero = np.zeros(arcs, dtype=np.int64)
        src = np.concatenate([to_hot, zero[:arcs_out], src + 1])
        dst = np.concatenate([zero[:arcs_in], from_hot, dst + 1])
        order = rng.permutation(arcs)
        w = pa.table({"src": _taken(names, src[order]), "dst": _taken(names, dst[order])})
        page = rng.permutation(pages)
        c = pa.table({"url": _taken(names, page), "score": np.round(rng.normal(50.0, 15.0, pages), 2)})
        return {
            "w": w,
            "w1": w.filter(pa.array(dst[order] == 0)),
            "w2": w.filter(pa.array(src[order] == 0)),
            "c": c,
        }

    return _stored(folder / f"web-{arcs_in}-{seed}", ("w", "w1", "w2", "c"), make)


def task_count(folder: Path, failed: int = 3_000_000, seed: int = SEED) -> dict[str, Path]:
    """`job_events`, `task_events` and `machine_events` in the proportions of the thesis's Google trace.

    The events of jobs and machines together are 14.5% of the task events that failed, which are what the query joins;
    a quarter of `task_events` are of other kinds, for the selection to drop. A job and a machine have three events
    each, so a failed task gives nine rows. Machines are equally busy; a job's tasks follow Zipf's law (0.5), which is
    mild.

    At full size: 4,000,000 task events, 3,000,000 of them failures; 426,300 events of 142,100 jobs and 8,700 of 2,900
    machines; 27,000,000 results. The heaviest job has 0.13% of the failures.
    """

    def make() -> dict[str, pa.Table]:
        rng = np.random.default_rng(seed)
        others = round(0.145 * failed)
        of_machines = max(3, round(0.02 * others) // 3 * 3)
        machines, jobs = of_machines // 3, (others - of_machines) // 3
        tasks = failed + failed // 3
        job_ids = 6_000_000_000 + rng.permutation(jobs)
        machine_ids = 10_000 + rng.permutation(machines)

        def times(rows: int) -> np.ndarray:
            return np.sort(rng.integers(0, 29 * 86_400_000_000, rows))

        kinds = ["SUBMIT", "SCHEDULE", "EVICT", "FINISH", "KILL", "FAIL"]
        kind = rng.permutation(np.concatenate([np.full(failed, 5), rng.integers(0, 5, tasks - failed)]))
        task_events = {
            "time": times(tasks),
            "job_id": job_ids[_zipf(rng, tasks, jobs, 0.5)],
            "machine_id": machine_ids[rng.integers(0, machines, tasks)],
            "event_type": _taken(kinds, kind),
        }
        event = rng.permutation(3 * jobs)
        job_events = {
            "time": times(3 * jobs),
            "job_id": job_ids[event // 3],
            "event_type": _taken(["SUBMIT", "SCHEDULE", "FINISH"], event % 3),
        }
        event = rng.permutation(of_machines)
        machine_events = {
            "time": times(of_machines),
            "machine_id": machine_ids[event // 3],
            "event_type": _taken(["ADD", "REMOVE", "UPDATE"], event % 3),
            "platform": _taken(PLATFORMS, event // 3 % len(PLATFORMS)),
        }
        tables = {"job_events": job_events, "task_events": task_events, "machine_events": machine_events}
        return {name: pa.table(table) for name, table in tables.items()}

    return _stored(folder / f"tasks-{failed}-{seed}", ("job_events", "task_events", "machine_events"), make)
