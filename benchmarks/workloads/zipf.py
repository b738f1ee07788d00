"""`zipf`: an equi-join of two tables whose keys follow Zipf's law, on one side or on both, for 64 workers."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import evenkeel as ek
from benchmarks.measure import consume, makespans, timed
from benchmarks.peers import spark_equi
from benchmarks.results import Results
from evenkeel import charts
from evenkeel.spark.session import local_session
from evenkeel.testing import zipf_keys, zipf_table

SEED = 20190415
WORKERS = 64
EXPONENTS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5)
MOST_PAIRS = 1.3e10
"""Joins with more pairs are timed on fewer rows; their loads are counted on all rows all the same."""
FEWER_PAIRS = 5e8
SALTED = "spark, salted"
WARM_ROUNDS = 60
HUGE = 5e9
"""From here on the runs that give task times give wall clock too."""


def run(options: argparse.Namespace) -> None:
    results = Results("zipf")
    results.say(f"seed {SEED}, {WORKERS} workers, {options.rows:,} rows a side, {options.keys:,} keys")
    spark = local_session(
        "evenkeel-bench-zipf",
        memory="8g",
        spark__sql__shuffle__partitions=str(WORKERS),
        spark__sql__autoBroadcastJoinThreshold="-1",
        spark__ui__retainedTasks="200000",
    )
    _warm(spark, options)
    cases = [(sides, e) for sides in ("one", "both") for e in EXPONENTS if options.only in (None, f"{sides}:{e}")]
    for sides, exponent in cases:
        if sides == "both" and exponent == 0.0:
            continue  # the same as one side
        results.add("cases", _case(spark, options, sides, exponent, results))
    if options.only is None:
        results.add("even", _even(spark, options, results))
        spark.stop()
        results.add("driver_memory", _driver_memory(results))
    _draw(results)
    results.print_table(_table(results.data), _targets(results.data))


def _pair(options: argparse.Namespace, sides: str, exponent: float, rows: int) -> tuple[Path, Path, float]:
    """Both tables as Parquet, and how many pairs their join has."""
    left, right = zipf_keys(rows, options.keys, exponent, SEED), None
    paths = []
    for name, e, seed in (("l", exponent, SEED), ("r", exponent if sides == "both" else 0.0, SEED + 100)):
        path = options.data / f"{name}-{rows}-{options.keys}-{e}"
        if not path.exists():
            part = path.with_suffix(".part")
            part.mkdir(parents=True, exist_ok=True)
            table = zipf_table(rows, options.keys, e, seed)
            for i in range(8):
                at = i * rows // 8
                pq.write_table(table.slice(at, (i + 1) * rows // 8 - at), part / f"{i}.parquet")
            part.rename(path)
        paths.append(path)
    right = zipf_keys(rows, options.keys, exponent if sides == "both" else 0.0, SEED + 100)
    counts = [np.bincount(k, minlength=options.keys).astype(float) for k in (left, right)]
    return paths[0], paths[1], float((counts[0] * counts[1]).sum())


def _warm(spark: SparkSession, options: argparse.Namespace) -> None:
    """Let the JVM compile what everybody uses before anything is timed: Spark's optimizer takes dozens of queries.

    Tables of the same schema, from files too, so that the generated code is that of the joins which are timed.
    """
    left_path, right_path, pairs = _pair(options, "one", 0.5, 50_000)
    left, right = spark.read.parquet(str(left_path)), spark.read.parquet(str(right_path))
    for round_ in range(WARM_ROUNDS):
        for peer in spark_equi.PEERS:
            if peer != SALTED or round_ < 6:  # its wall clock counts nowhere: it is many times slower
                _theirs(spark, peer, left, right, pairs, keep=False)
        consume(ek.join(left, right, "k", workers=WORKERS, scheme="heavy_light"), pairs)


def _case(
    spark: SparkSession, options: argparse.Namespace, sides: str, exponent: float, results: Results
) -> dict[str, Any]:
    left_path, right_path, pairs = _pair(options, sides, exponent, options.rows)
    left, right = spark.read.parquet(str(left_path)), spark.read.parquet(str(right_path))
    plan = ek.plan(left, right, "k", workers=WORKERS)
    load = plan.measure(run=False)
    hashed = ek.plan(left, right, "k", workers=WORKERS, scheme="hash").measure(run=False)
    case: dict[str, Any] = {
        "sides": sides,
        "exponent": exponent,
        "pairs": pairs,
        "scheme": "left to Spark" if plan.native else plan.scheme,
        "skew_degree": load.skew_degree,
        "predicted_skew_degree": plan.predicted.skew_degree,
        "hash_skew_degree": hashed.skew_degree,
        "replication": load.replication,
        "replication_needed": _needed(options, sides, exponent),
        "statistics_seconds": plan.tree.stats.seconds if plan.tree.stats else None,
    }
    assert abs(float(load.rows_out.sum()) - pairs) < 0.5, "pairs were lost or doubled"
    rows = options.rows
    if pairs > MOST_PAIRS:
        rows = int(options.rows * (FEWER_PAIRS / pairs) ** 0.5)
        left_path, right_path, pairs = _pair(options, sides, exponent, rows)
        left, right = spark.read.parquet(str(left_path)), spark.read.parquet(str(right_path))
    case["timed_rows"], case["timed_pairs"] = rows, pairs
    huge = pairs >= HUGE
    ours = partial(_ours, left, right, pairs)
    peers = {n: partial(_theirs, spark, n, left, right, pairs, huge) for n in spark_equi.PEERS}
    kept = {n: partial(_theirs, spark, n, left, right, pairs, True) for n in spark_equi.PEERS}
    salted = makespans(spark, {SALTED: (kept.pop(SALTED), None)}, WORKERS, 1)  # many times slower: one run is enough
    actions = {"evenkeel": (partial(_kept, spark, ours), None if plan.native else WORKERS)}
    case["makespan"] = makespans(spark, actions | {n: (a, None) for n, a in kept.items()}, WORKERS, options.repeat)
    case["makespan"] |= salted
    if huge:  # the same runs serve both: with this much output the number of tasks no longer matters to wall clock
        case["wall"] = {n: {"median": m["wall"], "runs": m["walls"]} for n, m in case["makespan"].items()}
    else:
        peers.pop(SALTED)
        case["wall"] = timed({"evenkeel": ours, **peers}, 2 * options.repeat + 1 if pairs < 3e8 else 2)
        case["wall"][SALTED] = {"median": salted[SALTED]["wall"]}
    results.say(
        f"{sides:4s} {exponent:3.1f}  {case['scheme']:13s} "
        f"skew {case['skew_degree']:.3f} (hash {hashed.skew_degree:.1f})  "
        f"replication {case['replication']:.2f} (needed {case['replication_needed']:.2f})  wall "
        + ", ".join(f"{n} {w['median']:.2f}" for n, w in case["wall"].items())
        + "  makespan "
        + ", ".join(f"{n} {m['seconds']:.2f}" for n, m in case["makespan"].items())
    )
    return case


def _ours(left: DataFrame, right: DataFrame, pairs: float) -> None:
    consume(ek.join(left, right, "k", workers=WORKERS), pairs)


def _kept(spark: SparkSession, ours: Callable[[], None]) -> None:
    """For a join left to Spark, as for Spark itself."""
    with spark_equi.settings(spark, spark_equi.KEEP_PARTITIONS):
        ours()


def _theirs(spark: SparkSession, peer: str, left: DataFrame, right: DataFrame, pairs: float, keep: bool) -> None:
    with spark_equi.settings(spark, spark_equi.PEERS[peer] | (spark_equi.KEEP_PARTITIONS if keep else {})):
        consume(spark_equi.join(peer, left, right), pairs)


def _needed(options: argparse.Namespace, sides: str, exponent: float) -> float:
    """Replication of the paper's own grids, with real-valued dimensions: what no integer grid can do better."""
    left = zipf_keys(options.rows, options.keys, exponent, SEED)
    right = zipf_keys(options.rows, options.keys, exponent if sides == "both" else 0.0, SEED + 100)
    r, s = (np.bincount(k, minlength=options.keys).astype(float) for k in (left, right))
    n = float(r.sum() + s.sum())
    out = r * s
    heavy = (np.maximum(r, s) > n / WORKERS) | (out > out.sum() / WORKERS)
    if not heavy.any():
        return 1.0
    unit = np.sqrt(WORKERS / out[heavy].sum())
    a, b = np.maximum(1, r[heavy] * unit), np.maximum(1, s[heavy] * unit)
    return float((n - (r + s)[heavy].sum() + (r[heavy] * b + s[heavy] * a).sum()) / n)


def _even(spark: SparkSession, options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """No skew, 5M rows a side: what looking for skew costs."""
    rows, keys = 5 * options.rows, options.keys
    scaled = argparse.Namespace(**{**vars(options), "keys": 5 * keys})
    left_path, right_path, pairs = _pair(scaled, "one", 0.0, rows)
    left, right = spark.read.parquet(str(left_path)), spark.read.parquet(str(right_path))
    wall = timed(
        {
            "spark": partial(_theirs, spark, "spark", left, right, pairs, False),
            "evenkeel": partial(_ours, left, right, pairs),
        },
        max(5, options.repeat),
    )
    plan = ek.plan(left, right, "k", workers=WORKERS)
    ratio = wall["evenkeel"]["median"] / wall["spark"]["median"]
    results.say(f"no skew, {rows:,} rows a side: {ratio:.3f} x Spark, {plan.tree.reason}")
    return {"rows": rows, "pairs": pairs, "wall": wall, "ratio": ratio, "native": plan.native}


def _driver_memory(results: Results) -> dict[str, Any]:
    """Statistics of 100M distinct keys, in a process of its own whose driver may receive 64 MB at the most."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.workloads.zipf"], capture_output=True, text=True, check=True, timeout=900
    )
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    results.say(
        f"statistics of {found['keys']:,} distinct keys: "
        f"driver grew by {found['grew_mb']:.0f} MB, {found['seconds']:.1f} s"
    )
    return found


def _statistics_of_100m() -> None:
    spark = local_session("evenkeel-bench-driver", memory="4g", spark__driver__maxResultSize="64m")
    keys = 100_000_000
    small = spark.range(1000).withColumnRenamed("id", "k")
    ek.plan(small, small, "k", workers=WORKERS)  # everything is loaded before memory is looked at
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = spark.range(keys).withColumnRenamed("id", "k")
    sampled = time.perf_counter()
    ek.plan(frame, frame, "k", workers=WORKERS)
    seconds = time.perf_counter() - sampled
    opaque = frame.crossJoin(spark.range(1))  # Spark does not know the size of a join: every row is read
    whole = time.perf_counter()
    ek.plan(opaque, opaque, "k", workers=WORKERS)
    grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        json.dumps(
            {
                "keys": keys,
                "grew_mb": grew,
                "seconds": seconds,
                "seconds_every_row": time.perf_counter() - whole,
                "max_result_mb": 64,
            }
        )
    )
    spark.stop()


def _best_spark(values: dict[str, Any], field: str, salted: bool) -> float:
    return min(v[field] for n, v in values.items() if n != "evenkeel" and (salted or n != SALTED))


def _table(data: dict[str, Any]) -> list[list[str]]:
    head = [
        "Zipf on", "exponent", "pairs", "skew degree, hash", "skew degree", "replication (needed)",
        "makespan: Spark", "best Spark", "salted", "Evenkeel", "wall: best Spark", "salted", "Evenkeel",
    ]  # fmt: skip
    rows = [head]
    for c in data["cases"]:
        m, w = c["makespan"], c["wall"]
        rows.append(
            [
                c["sides"] + (" side" if c["sides"] == "one" else " sides"),
                f"{c['exponent']:g}",
                f"{c['pairs']:.2g}",
                f"{c['hash_skew_degree']:.2f}",
                f"{c['skew_degree']:.2f}",
                f"{c['replication']:.2f} ({c['replication_needed']:.2f})",
                f"{m['spark']['seconds']:.2f} s",
                f"{_best_spark(m, 'seconds', False):.2f} s",
                f"{m[SALTED]['seconds']:.2f} s",
                f"{m['evenkeel']['seconds']:.2f} s",
                f"{_best_spark(w, 'median', False):.2f} s",
                f"{w[SALTED]['median']:.2f} s",
                f"{w['evenkeel']['median']:.2f} s",
            ]
        )
    return rows


def _targets(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Each number that was asked for, what was measured, and whether it holds."""
    cases = data["cases"]
    out = []
    worst = max(cases, key=lambda c: c["skew_degree"])
    out.append(
        ("weight skew degree at most 1.15 everywhere", f"{worst['skew_degree']:.3f}", worst["skew_degree"] <= 1.15)
    )
    mild = [c["replication"] for c in cases if c["exponent"] <= 1.0]
    out.append(("replication at most 2.5 up to exponent 1.0", f"{max(mild):.2f}", max(mild) <= 2.5))
    steep = [c["replication"] / c["replication_needed"] for c in cases if c["exponent"] > 1.0]
    if steep:
        out.append(("replication at most 1.2 x what grids need above 1.0", f"{max(steep):.2f}", max(steep) <= 1.2))
    for c in cases:
        if c["sides"] == "both" and c["exponent"] == 1.0:
            m = c["makespan"]
            gain = m["spark"]["seconds"] / m["evenkeel"]["seconds"]
            out.append(
                ("makespan at exponent 1.0 on both sides at least 25 x better than Spark", f"{gain:.1f}", gain >= 25)
            )
            gain = _best_spark(m, "seconds", False) / m["evenkeel"]["seconds"]
            out.append(("at least 8 x better than the best Spark setting", f"{gain:.1f}", gain >= 8))
    skewed = [c for c in cases if c["hash_skew_degree"] > 1.1]
    ratios = {
        f"{c['sides']} {c['exponent']:g}": c["wall"]["evenkeel"]["median"] / _best_spark(c["wall"], "median", True)
        for c in skewed
    }
    if ratios:
        name = max(ratios, key=lambda n: ratios[n])
        out.append(
            ("wall clock when skewed at most 1.1 x the best Spark", f"{ratios[name]:.2f} ({name})", ratios[name] <= 1.1)
        )
    if "even" in data:
        ratio = data["even"]["ratio"]
        out.append(("wall clock without skew, 5M rows, at most 1.15 x Spark", f"{ratio:.3f}", ratio <= 1.15))
    if "driver_memory" in data:
        grew = data["driver_memory"]["grew_mb"]
        out.append(("driver memory for 100M distinct keys under 200 MB", f"{grew:.0f} MB", grew < 200))
    return out


def _draw(results: Results) -> None:
    for sides in ("one", "both"):
        cases = [c for c in results.data["cases"] if c["sides"] == sides]
        if len(cases) < 2:
            continue
        names = list(cases[0]["makespan"])
        series = {n: [c["makespan"][n]["seconds"] for c in cases] for n in names}
        title = f"projected makespan on {WORKERS} workers, Zipf on {sides} side{'s' if sides == 'both' else ''}"
        x = [c["exponent"] for c in cases]
        results.picture(f"makespan-{sides}", charts.curves(title, x, series, "Zipf exponent", "seconds"))


if __name__ == "__main__":
    _statistics_of_100m()
