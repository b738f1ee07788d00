"""`band`: the joins of Squall's chapter 4 on 32 workers: X with three widths, B_ICD and BE_OCD over TPC-H orders.

X follows section 4.6.1: a fifth of the rows in a dense segment that gives most of the output, the rest sparse. The
TPC-H joins take `orders` at scale 1 from tpchgen-cli, with customer keys drawn by Zipf's law (0.25). Orders have but
one ship priority in TPC-H, so BE_OCD draws it from 0 to 9, and its customers are 10,000, which makes it what its name
says: dominated by output. Every peer sums up the same columns of every pair, so no pair can be skipped.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import evenkeel as ek
from benchmarks.measure import peak_mb, timed
from benchmarks.peers import spark_band
from benchmarks.peers.spark_equi import settings
from benchmarks.results import Results
from evenkeel import charts
from evenkeel.report import weight
from evenkeel.spark.metrics import operator_bytes, tagged, task_metric
from evenkeel.spark.session import local_session
from evenkeel.testing import zipf_keys

SEED = 20150413
WORKERS = 32
SCHEMES = ("one_bucket", "m_bucket", "equi_weight")
HAND_WIDTHS = {1: (8, 16), 3: (8, 16), 16: (32, 64)}
"""The widths that were fastest by hand, of 3 to 64."""
WARM = 5
"""Rounds of all peers before any is timed: until then the JVM compiles, and times fall from round to round."""


def run(options: argparse.Namespace) -> None:
    results = Results("band")
    rows = 2 * options.rows
    results.say(f"seed {SEED}, {WORKERS} workers, X with {rows:,} rows a side, TPC-H orders at scale 1")
    spark = local_session(
        "evenkeel-bench-band",
        memory="8g",
        spark__sql__shuffle__partitions=str(WORKERS),
        spark__sql__autoBroadcastJoinThreshold="-1",
        spark__ui__retainedTasks="200000",
    )
    cases = [(f"X, beta {b}", f"abs(l.key - r.key) <= {b}", b) for b in (1, 3, 16)]
    cases += [
        ("B_ICD", "abs(l.orderkey - 10 * r.custkey) <= 2", None),
        ("BE_OCD", "l.custkey = r.custkey AND abs(l.priority - r.priority) <= 2", None),
    ]
    for name, on, beta in cases:
        if options.only not in (None, name):
            continue
        paths = _x(options.data, rows) if beta else _orders(options.data, name)
        results.add("cases", _case(spark, options, results, name, on, beta, *paths))
    if options.only is None:
        results.add("small", _small(spark, options, results))
        results.add("growth", _growth(spark, options, results))
        results.add("weights", _fit_weights(results))
        spark.stop()
        results.add("planning", _planning(results))
    _draw(results)
    results.print_table(_table(results.data), _targets(results.data))


def _write(path: Path, table: pa.Table) -> Path:
    if not path.exists():
        part = path.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        for i in range(8):
            at = i * len(table) // 8
            pq.write_table(table.slice(at, (i + 1) * len(table) // 8 - at), part / f"{i}.parquet")
        part.rename(path)
    return path


def x_keys(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rows // 5
    y = rows - x
    keys = np.concatenate([rng.integers(0, x // 6 + 1, x), rng.integers(2 * y, 6 * y + 1, y)])
    rng.shuffle(keys)
    return keys


def _x(data: Path, rows: int) -> tuple[Path, Path]:
    paths = []
    for i, side in enumerate("lr"):
        rng = np.random.default_rng(SEED + 10 + i)
        table = {"key": x_keys(rows, SEED + i), "id": np.arange(rows), "v": rng.random(rows)}
        paths.append(_write(data / f"x-{side}-{rows}", pa.table(table)))
    return paths[0], paths[1]


def _orders(data: Path, name: str) -> tuple[Path, Path]:
    source = data / "tpch" / "orders.parquet"
    if not source.exists():
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(tool), "parquet", "-s", "1", "--tables=orders", f"--output-dir={source.parent}"]
        subprocess.run(command, check=True, timeout=600)
    orders = pq.read_table(source, columns=["o_orderkey", "o_totalprice"])
    customers, n = (150_000 if name == "B_ICD" else 10_000), len(orders)
    paths = []
    for i, side in enumerate("lr"):
        rng = np.random.default_rng(SEED + 20 + i)
        table = {
            "orderkey": orders["o_orderkey"],
            "custkey": zipf_keys(n, customers, 0.25, SEED + 30 + i).astype(np.int64),
            "priority": rng.integers(0, 10, n).astype(np.int32),
            "id": np.arange(n),
            "v": orders["o_totalprice"].cast(pa.float64()),
        }
        paths.append(_write(data / f"orders-{name}-{side}", pa.table(table)))
    return paths[0], paths[1]


def consume(joined: DataFrame) -> int:
    """Read every pair: its count, and sums over columns of both sides."""
    row = joined.agg(F.count(F.lit(1)), F.sum(F.expr("id - id_r")), F.sum(F.expr("v + v_r"))).collect()[0]
    return int(row[0])


def duck(left: Path, right: Path, on: str) -> int:
    """DuckDB sorts for comparisons, not for abs(): it gets the condition in the form that suits it."""
    on = re.sub(r"abs\((\S+) - (.+?)\) <= (\d+)", r"\1 BETWEEN \2 - \3 AND \2 + \3", on)
    sums = "count(*), sum(l.id - r.id), sum(l.v + r.v)"
    with duckdb.connect() as db:
        db.execute("SET threads = 2")
        found = db.execute(f"SELECT {sums} FROM '{left}/*.parquet' l JOIN '{right}/*.parquet' r ON {on}").fetchone()
    return int(found[0]) if found else 0


def _case(
    spark: SparkSession,
    options: argparse.Namespace,
    results: Results,
    name: str,
    on: str,
    beta: int | None,
    left_path: Path,
    right_path: Path,
) -> dict[str, Any]:
    left, right = spark.read.parquet(str(left_path)), spark.read.parquet(str(right_path))
    pairs = duck(left_path, right_path, on)
    case: dict[str, Any] = {"name": name, "on": on, "rows": left.count(), "pairs": pairs, "schemes": {}}
    for scheme in SCHEMES:
        plan = ek.plan(left, right, on, workers=WORKERS, scheme=scheme)
        load = plan.measure()
        assert load.rows_out.sum() == pairs, "pairs were lost or doubled"
        assert load.task_seconds is not None
        case["schemes"][scheme] = {
            "heaviest": float(load.weights.max()),
            "estimated": float(plan.predicted.weights.max()),
            "skew_degree": load.skew_degree,
            "replication": load.replication,
            "rows_shipped": float(load.rows_in.sum()),
            "rows_in": load.rows_in.tolist(),
            "rows_out": load.rows_out.tolist(),
            "task_seconds": load.task_seconds.tolist(),
            "task_memory": _memory(spark, plan),
            "statistics_seconds": plan.tree.stats.seconds if plan.tree.stats else 0.0,
        }
    chosen = ek.plan(left, right, on, workers=WORKERS)
    case["auto"] = chosen.scheme
    plans = {s: ek.plan(left, right, on, workers=WORKERS, scheme=s) for s in SCHEMES}
    actions: dict[str, Any] = {
        "evenkeel, with planning": lambda: consume(ek.join(left, right, on, workers=WORKERS)),
        "evenkeel, planning": lambda: ek.plan(left, right, on, workers=WORKERS),
        "evenkeel, equi_weight": lambda: consume(plans["equi_weight"].execute()),
        "duckdb": partial(duck, left_path, right_path, on),
    }
    if beta is not None:
        for width in HAND_WIDTHS[beta]:
            actions[f"spark, bins of {width}"] = partial(_bins, left, right, beta, width)
    else:
        equality = "custkey = custkey_r AND " if "custkey = " in on else ""
        if equality:
            condition = F.expr(f"{equality}abs(priority - priority_r) <= 2")
            actions["spark, equality"] = lambda: consume(left.join(spark_band.renamed(right), condition))
    others = {f"evenkeel, {s}": partial(lambda s: consume(plans[s].execute()), s) for s in SCHEMES[:2]}
    case["wall"] = {**timed(actions, options.repeat, warm=WARM), **timed(others, 1)}
    wall = {n: w["median"] for n, w in case["wall"].items()}
    results.say(f"{name:10s} {pairs:,} pairs; auto: {case['auto']}")
    for s, m in case["schemes"].items():
        results.say(
            f"   {s:12s} heaviest {m['heaviest']:,.0f} (estimated {m['estimated']:,.0f})  skew {m['skew_degree']:.3f}  "
            f"replication {m['replication']:.2f}"
        )
    results.say("   " + ", ".join(f"{n} {w:.2f}" for n, w in wall.items()))
    return case


def _memory(spark: SparkSession, plan: ek.JoinPlan) -> float:
    """Bytes that the hungriest task of the join held, for sorting and for its hash table: Spark counts them apart."""
    with tagged(spark) as tag:
        consume(plan.execute())
        sorted_ = task_metric(spark, tag, "peakExecutionMemory", WORKERS)
        hashed = operator_bytes(spark, tag, "data size of build side")
    assert sorted_ is not None and hashed is not None, "the benchmark needs Spark's UI for task metrics"
    return float(sorted_.max()) + hashed


def _bins(left: DataFrame, right: DataFrame, beta: int, width: int) -> int:
    return consume(spark_band.bins(left, right, beta, width))


def _small(spark: SparkSession, options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """80,000 rows a side against Spark's own plan."""
    left, right = (spark.read.parquet(str(p)) for p in _x(options.data, 80_000))
    ours = timed({"evenkeel": partial(_joined, left, right, "abs(l.key - r.key) <= 1")}, 3, warm=8)
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "10MB"}):  # its default, which suits it best
        start = time.perf_counter()
        consume(spark_band.own_plan(left, right, 1))
        own = time.perf_counter() - start
    ratio = own / ours["evenkeel"]["median"]
    results.say(f"80,000 rows a side: Spark's own plan {own:.1f} s, {ratio:.1f} x ours")
    return {"evenkeel": ours["evenkeel"], "spark": own, "ratio": ratio}


def _growth(spark: SparkSession, options: argparse.Namespace, results: Results) -> list[dict[str, float]]:
    out = []
    for rows in (options.rows, 2 * options.rows, 4 * options.rows):
        left, right = (spark.read.parquet(str(p)) for p in _x(options.data, rows))
        on = "abs(l.key - r.key) <= 3"
        pairs = consume(ek.join(left, right, on, workers=WORKERS))
        wall = timed({"evenkeel": partial(_joined, left, right, on)}, options.repeat)["evenkeel"]
        out.append({"rows": rows, "io": 2 * rows + pairs, "wall": wall["median"]})
        results.say(f"{rows:,} rows a side, {pairs:,} pairs: {wall['median']:.2f} s")
    return out


def _joined(left: DataFrame, right: DataFrame, on: str) -> int:
    return consume(ek.join(left, right, on, workers=WORKERS))


def _fit_weights(results: Results) -> dict[str, float]:
    """Seconds of a task = w_i * rows in + w_o * rows out, by least squares over every region of every case."""
    rows, seconds = [], []
    for case in results.data["cases"]:
        for m in case["schemes"].values():
            rows.append(np.stack([m["rows_in"], m["rows_out"]], axis=1))
            seconds.append(m["task_seconds"])
    a, b = np.concatenate(rows), np.concatenate(seconds)
    w_in, w_out = np.linalg.lstsq(a, b, rcond=None)[0]
    residual = float(1 - np.sum((b - a @ [w_in, w_out]) ** 2) / np.sum((b - b.mean()) ** 2))
    results.say(f"fitted: {w_in * 1e6:.3f} us a row in, {w_out * 1e6:.3f} us a row out, ratio {w_out / w_in:.3f}")
    return {"in_us": float(w_in * 1e6), "out_us": float(w_out * 1e6), "ratio": float(w_out / w_in), "r2": residual}


def _planning(results: Results) -> list[dict[str, float]]:
    """The histogram for 64 and for 256 workers, in a process of its own; reading the keys comes on top."""
    out = []
    for workers in (64, 256):
        command = [sys.executable, "-m", "benchmarks.workloads.band", str(workers)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
        out.append(json.loads(ran.stdout.strip().splitlines()[-1]))
        results.say(f"planning for {workers} workers: {out[-1]['seconds']:.2f} s, {out[-1]['grew_mb']:.0f} MB")
    return out


def _plan_alone(workers: int) -> None:
    from evenkeel.schemes import Problem, scheme_named
    from evenkeel.stats import Axis, JoinStats, RangeStats, SideStats
    from evenkeel.types import Absent, Exact

    keys = [x_keys(2_000_000, SEED + i).astype(float) for i in range(2)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of making the data
    before = peak_mb()
    start = time.perf_counter()
    axes = [Axis.of(None, k, Exact(len(k)), Exact(0)) for k in keys]
    stats = RangeStats(axes[0], axes[1], -3.0, 3.0, 2.0**-50)
    none = np.empty(0, dtype=np.int64)
    sides = [SideStats(Exact(len(k)), Exact(0), Absent(), none, none.astype(float), True) for k in keys]
    load = scheme_named("equi_weight").fit(Problem(JoinStats(*sides), "inner", workers, False, ranges=stats)).predicted
    seconds = time.perf_counter() - start
    grew = peak_mb() - before
    assert load is not None
    print(json.dumps({"workers": workers, "seconds": seconds, "grew_mb": grew, "skew_degree": load.skew_degree}))


def _best_hand(case: dict[str, Any]) -> float:
    return min(w["median"] for n, w in case["wall"].items() if n.startswith("spark, bins"))


def _table(data: dict[str, Any]) -> list[list[str]]:
    head = [
        "join", "rows a side", "pairs", "scheme", "heaviest region", "heaviest / mean", "estimate off", "replication",
        "memory of a task", "planning", "join", "DuckDB", "best hand-tuned Spark",
    ]  # fmt: skip
    rows = [head]
    for c in data["cases"]:
        wall = {n: w["median"] for n, w in c["wall"].items()}
        hand = [w for n, w in wall.items() if n.startswith("spark")]
        for s, m in c["schemes"].items():
            rows.append(
                [
                    c["name"],
                    f"{c['rows']:,}",
                    f"{c['pairs']:,}",
                    f"{s}{' (auto)' if s == c['auto'] else ''}",
                    f"{m['heaviest']:,.0f}",
                    f"{m['skew_degree']:.2f}",
                    f"{abs(m['estimated'] / m['heaviest'] - 1):.1%}",
                    f"{m['replication']:.2f}",
                    f"{m['task_memory'] / 2**20:.0f} MB",
                    f"{wall['evenkeel, planning']:.2f} s",
                    f"{wall[f'evenkeel, {s}']:.2f} s",
                    f"{wall['duckdb']:.2f} s",
                    f"{min(hand):.2f} s" if hand else "",
                ]
            )
    return rows


def _targets(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    cases, out = data["cases"], []
    ours = [c["schemes"]["equi_weight"] for c in cases]
    worst = max(m["skew_degree"] for m in ours)
    out.append(("equi_weight: heaviest / mean at most 1.3", f"{worst:.3f}", worst <= 1.3))
    off = max(abs(m["estimated"] / m["heaviest"] - 1) for m in ours)
    out.append(("its estimate within 10% of what was measured", f"{off:.1%}", off <= 0.1))
    others = [(c["schemes"]["one_bucket"]["heaviest"], c["schemes"]["m_bucket"]["heaviest"]) for c in cases]
    lag = max(m["heaviest"] / min(o) for m, o in zip(ours, others, strict=True))
    out.append(("never more than 1.15 x the better of the other two", f"{lag:.2f}", lag <= 1.15))
    gain = max(max(o) / m["heaviest"] for m, o in zip(ours, others, strict=True))
    out.append(("at least 4 x better than the worse of them somewhere", f"{gain:.1f}", gain >= 4))
    for c in cases:
        if c["name"].startswith("X"):
            wall = {n: w["median"] for n, w in c["wall"].items()}
            ratio = wall["evenkeel, equi_weight"] / _best_hand(c)
            what = f"{c['name']}: at most 1.2 x the best hand-tuned bins, without planning"
            out.append((what, f"{ratio:.2f}", ratio <= 1.2))
            most = {"X, beta 1": 3.0, "X, beta 16": 2.0}.get(c["name"])
            if most:
                ratio = wall["evenkeel, with planning"] / wall["duckdb"]
                what = f"{c['name']}: at most {most:g} x DuckDB, with planning"
                out.append((what, f"{ratio:.2f}", ratio <= most))
    if "small" in data:
        ratio = data["small"]["ratio"]
        out.append(("80,000 rows a side: at least 10 x faster than Spark's own plan", f"{ratio:.1f}", ratio >= 10))
    if "growth" in data:
        first, last = data["growth"][0], data["growth"][-1]
        time_, io = last["wall"] / first["wall"], last["io"] / first["io"]
        said = f"{time_:.2f} x the time for {io:.2f} x the rows"
        out.append(("from 1M to 4M rows no faster than input plus output", said, time_ <= io))
    for p, most in zip(data.get("planning", ()), (3.0, 60.0), strict=False):
        what = f"planning for {p['workers']} workers within {most:g} s and 500 MB"
        holds = p["seconds"] <= most and p["grew_mb"] < 500
        out.append((what, f"{p['seconds']:.2f} s, {p['grew_mb']:.0f} MB", holds))
    return out


def _draw(results: Results) -> None:
    for c in results.data["cases"]:
        if c["name"] == "X, beta 3":
            panels = []
            for s, m in c["schemes"].items():
                load = np.asarray(weight(np.array(m["rows_in"]), np.array(m["rows_out"])))
                said = f"heaviest {m['heaviest']:,.0f}, replication {m['replication']:.2f}"
                panels.append(charts.Panel(s, load, said))
            results.picture("loads", charts.svg(panels))


if __name__ == "__main__":
    _plan_alone(int(sys.argv[1]))
