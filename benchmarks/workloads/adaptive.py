"""`adaptive`: strategies that rebalance themselves, on the papers' workloads.

    groups       FastJoin's nine Zipf groups G00 .. G22, 16 and 48 units                     its figure 12
    units        a ride-hailing stream with wandering hot cells, 16 to 64 units              its figure 5
    imbalance    LI epoch by epoch of the same                                               its figure 11
    changes      one hot key, hot keys that flip every 20 epochs, wandering cells, sorted arrival
    hypercube    Zipf with rising skew, the heaviest unit against the static optimum         Streaming HyperCube, fig. 4
    one_bucket   two streams of unequal size, rising skew, 16 units                          Squall, table 6.1
    scale        1,000 units, 10M rows; and the simulator beside the engine
    spark        real Structured Streaming: rows a second, and by how much a migration delays its epoch

Loads are simulated by the strategies' own objects but for the last part. Throughput counts rows for each unit of work
of the heaviest unit: what a cluster waits for. Parts run one by one with --only.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import local_engine
from benchmarks.results import Results
from evenkeel.charts import curves
from evenkeel.simulate import Distribution, HotKey, SimulationReport, Sorted, Wandering, Zipf, simulate
from evenkeel.simulate.distributions import draw

SEED = 20190520
THETA = 2.2
SETTLED = 3
"""Epochs within which a change has to be balanced."""
EPOCHS, ROWS = 80, 8_000_000
UNITS = (16, 48)
GROUPS = {f"G{x}{y}": (Zipf(float(x)), Zipf(float(y))) for x in range(3) for y in range(3)}
CHANGES: dict[str, tuple[Distribution, int | None]] = {
    "one hot key of 30%": (HotKey(0.3), None),
    "hot key flips": (HotKey(0.3, 20), 20),
    "wandering cells": (Wandering(1.0, 4_000, 0.25), None),
    "sorted arrival": (Sorted(Zipf(0.0)), None),
}
"""A distribution for both streams, and every how many epochs it changes at once."""
STATIC = ("hash", "contrand", "random")
PARTS = ("groups", "units", "imbalance", "changes", "hypercube", "one_bucket", "scale", "spark")


def run(options: argparse.Namespace) -> None:
    name = "adaptive" if options.only is None else f"adaptive-{options.only}"
    results = Results(name)
    results.say(f"seed {SEED}, {EPOCHS} epochs, {ROWS:,} rows")
    parts = {
        "groups": _groups, "units": _units, "imbalance": _imbalance, "changes": _changes, "hypercube": _hypercube,
        "one_bucket": _one_bucket, "scale": _scale,
    }  # fmt: skip
    for part, measure in parts.items():
        if options.only in (None, part):
            results.add(part, measure(results))
    if options.only in (None, "spark"):
        results.add("spark", _spark(results, options))
    results.print_table(_table(results.data), _targets(results.data))


def _simulated(strategy: str, left: Distribution, right: Distribution, units: int, **more: Any) -> SimulationReport:
    return simulate(strategy, left, right, units=units, **({"epochs": EPOCHS, "rows": ROWS, "seed": SEED} | more))


def _numbers(report: SimulationReport) -> dict[str, Any]:
    li = np.array(report.li)
    return {
        "work": report.makespan,
        "li_under": float((li < THETA).mean()),
        "li": [round(float(x), 2) for x in li],
        "heaviest_over_mean": float(report.heaviest_over_mean[SETTLED:].max()),
        "moved": report.moved_share,
        "tables": report.versions[-1] + 1,
    }


def _groups(results: Results) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for units in UNITS:
        for name, (left, right) in GROUPS.items():
            case = {s: _numbers(_simulated(s, left, right, units)) for s in (*STATIC, "fastjoin")}
            out[f"{name} {units}"] = case
            gain = ", ".join(f"{case[s]['work'] / case['fastjoin']['work']:.2f}x {s}" for s in STATIC)
            under = case["fastjoin"]["li_under"]
            results.say(f"{name}, {units} units: fastjoin {gain}; LI under {THETA} in {under:.0%} of epochs")
    for units in UNITS:
        series = {s: [ROWS / out[f"{g} {units}"][s]["work"] * 1e6 for g in GROUPS] for s in (*STATIC, "fastjoin")}
        title = f"Rows for a million comparisons of the heaviest unit, G00 to G22, {units} units"
        results.picture(f"groups-{units}", curves(title, list(range(9)), series, "group", "rows"))
    return out


def _ride() -> tuple[Distribution, Distribution]:
    """Orders crowd in wandering cells, taxis around them a little less."""
    return Wandering(1.05, 4_000, 0.25), Wandering(0.95, 4_000, 0.25)


def _units(results: Results) -> dict[str, Any]:
    counts = (16, 24, 32, 48, 64)
    out: dict[str, Any] = {}
    for units in counts:
        out[str(units)] = {s: _numbers(_simulated(s, *_ride(), units)) for s in ("hash", "contrand", "fastjoin")}
        case = out[str(units)]
        results.say(
            f"ride-hailing, {units} units: fastjoin {case['hash']['work'] / case['fastjoin']['work']:.2f}x hash, "
            f"{case['contrand']['work'] / case['fastjoin']['work']:.2f}x contrand"
        )
    series = {s: [ROWS / out[str(u)][s]["work"] * 1e6 for u in counts] for s in ("hash", "contrand", "fastjoin")}
    results.picture("units", curves("Rows for a million comparisons of the heaviest unit, ride-hailing",
                                    list(counts), series, "units", "rows"))  # fmt: skip
    return out


def _imbalance(results: Results) -> dict[str, Any]:
    out = {s: _numbers(_simulated(s, *_ride(), 48)) for s in ("hash", "contrand", "fastjoin")}
    results.picture("imbalance", curves("Degree of load imbalance, ride-hailing, 48 units", list(range(0, EPOCHS, 4)),
                                        {s: out[s]["li"][::4] for s in out}, "epoch", "LI"))  # fmt: skip
    for s, n in out.items():
        results.say(f"ride-hailing, 48 units: {s} LI {statistics.median(n['li']):.2f} in the middle")
    return out


def _changes(results: Results) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for units in UNITS:
        for name, (dist, every) in CHANGES.items():
            case = {s: _numbers(_simulated(s, dist, dist, units)) for s in ("hash", "fastjoin")}
            case["settled"] = _settled(case["fastjoin"]["li"], every)
            out[f"{name} {units}"] = case
            fast = case["fastjoin"]
            results.say(
                f"{name}, {units} units: LI under {THETA} in {fast['li_under']:.0%}, again after at most "
                f"{case['settled']} epochs; heaviest/mean {fast['heaviest_over_mean']:.2f}, hash "
                f"{case['hash']['heaviest_over_mean']:.2f}; {fast['moved']:.0%} of the rows moved"
            )
    return out


def _settled(li: list[float], every: int | None) -> int:
    """How many epochs after a change, the start included, LI was under the threshold again, at worst."""
    worst = 0
    for start in range(0, len(li), every or len(li)):
        after = [n for n, x in enumerate(li[start : start + (every or len(li))]) if x < THETA]
        worst = max(worst, after[0] if after else every or len(li))
    return worst


def _hypercube(results: Results) -> dict[str, Any]:
    out: dict[str, Any] = {}
    worlds: dict[str, Distribution] = {f"zipf {a:.2f}": Zipf(a) for a in (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)}
    worlds |= {name: dist for name, (dist, _) in CHANGES.items()}
    for units in UNITS:
        for name, dist in worlds.items():
            report = _simulated("hypercube", dist, dist, units, optimum=True)
            ratio = np.array([s.max() / o for s, o in zip(report.stored, report.optimum, strict=True)])
            plain = {s: _simulated(s, dist, dist, units) for s in ("hash", "contrand")}
            work = report.makespan
            out[f"{name} {units}"] = {
                "ratio": float(ratio[SETTLED:].max()), "ratio_ever": float(ratio.max()), "moved": report.moved_share,
                "over": int((ratio > 2).sum()), "heaviest": float(report.stored[-1].max()), "work": work,
                **{s: {"heaviest": float(p.stored[-1].max()), "work": p.makespan} for s, p in plain.items()},
            }  # fmt: skip
            results.say(
                f"hypercube, {name}, {units} units: {ratio[SETTLED:].max():.2f}x the static optimum at worst "
                f"({ratio.max():.2f}x with the first epochs), {report.moved_share:.1%} moved, "
                f"{plain['hash'].makespan / work:.2f}x hash"
            )
    zipf = [0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0]
    series = {s: [float(out[f"zipf {a:.2f} 48"][s]["work"]) for a in zipf] for s in ("hash", "contrand")}
    series["hypercube"] = [float(out[f"zipf {a:.2f} 48"]["work"]) for a in zipf]
    results.picture("hypercube", curves("Work of the heaviest of 48 units", zipf, series, "Zipf", "comparisons"))
    return out


def _one_bucket(results: Results) -> dict[str, Any]:
    """EQ5 and EQ7: a small stream and one 64 or 16 times as large, whose keys are skewed by z."""
    out: dict[str, Any] = {}
    for query, ratio in (("EQ5", 64), ("EQ7", 16)):
        small = ROWS // (ratio + 1)
        for z, exponent in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
            keys = Zipf(0.0, 10_000), Zipf(exponent, 10_000)
            case = {}
            for shown, strategy in (("SHJ", "hash"), ("DYNAMIC", "adaptive_one_bucket"), ("STATICMID", "one_bucket")):
                report = _simulated(strategy, *keys, 16, rows=(small, ratio * small))
                case[shown] = {
                    "rows": float(report.stored[-1].max()), "received": float(sum(r.max() for r in report.received)),
                    "moved": report.moved_share,
                }  # fmt: skip
            out[f"{query} Z{z}"] = case
            results.say(f"{query} Z{z}: rows of the heaviest unit " +
                        ", ".join(f"{s} {n['rows']:,.0f}" for s, n in case.items()))  # fmt: skip
    return out


def _scale(results: Results) -> dict[str, Any]:
    begun = time.perf_counter()
    skewed = Zipf(1.0)
    big = simulate("fastjoin", skewed, skewed, units=1_000, epochs=50, rows=10_000_000)
    seconds = time.perf_counter() - begun
    out: dict[str, Any] = {"seconds": seconds, "li": big.li[-1], "difference": {}}
    results.say(f"1,000 units, 10M rows: {seconds:.1f} s, LI {big.li[-1]:.2f} at last")
    world = HotKey(0.2, None, Zipf(0.3, 20_000))
    for strategy in ("hash", "contrand", "one_bucket", "fastjoin", "hypercube"):
        engine = local_engine.run(strategy, world, world, 8, 10, 10_000)
        report = local_engine.simulated(strategy, world, world, 8, 10, 10_000)
        out["difference"][strategy] = local_engine.difference(engine, report.work)
        results.say(f"{strategy}: simulated loads within {out['difference'][strategy]:.1%} of the engine's")
    return out


def _spark(results: Results, options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.workloads.stream_feeds import equal, feed, ours, sparks
    from evenkeel.spark.session import local_session

    spark = local_session("evenkeel-bench-adaptive", memory="4g", spark__sql__shuffle__partitions="2")
    batches, rows = 24, options.adaptive_rows
    even = Zipf(0.0, rows * 4)
    worlds: dict[str, dict[str, Distribution]] = {
        "no skew": {"left": even, "right": even},
        "skew": {"left": Zipf(1.2, rows * 4), "right": even},
        "hot key flips": {"left": HotKey(0.3, 8, even), "right": even},
    }
    """Skewed on one side: the results of a history that is skewed on both grow with every epoch, and their time too."""
    out: dict[str, Any] = {}
    for name, dists in worlds.items():

        def make(b: int, side: str, dists: dict[str, Distribution] = dists) -> pa.Table:
            keys = draw(dists[side], rows, b, batches, SEED + (side == "left"))
            return pa.table({"k": keys, "id": np.arange(rows) + b * rows, "v": keys * 0.5})

        folder = feed(options.data / f"adaptive-left-{name.replace(' ', '-')}-{rows}", batches, make)
        work = options.data / "adaptive-work"
        case: dict[str, Any] = {}
        for strategy in ("hash", "contrand", "random", "fastjoin", "hypercube"):
            if strategy in ("hash", "fastjoin", "hypercube"):  # the first run after a change warms up
                ours(spark, folder, work, "k", strategy=strategy, units=16)
            clock, query = ours(spark, folder, work, "k", strategy=strategy, units=16)
            case[strategy] = _measured(clock.seconds, query, rows)
            results.say(f"{name}: {strategy} {case[strategy]['rows_per_second']:,.0f} rows/s, "
                        f"{len(case[strategy]['migrations'])} migrations, {case[strategy]['delay']:.2f}x")  # fmt: skip
        clock = sparks(spark, "rocksdb", folder, work, equal)
        case["spark"] = {"rows_per_second": 2 * rows / statistics.median(clock.seconds[3:])}
        results.say(f"{name}: Spark's own join {case['spark']['rows_per_second']:,.0f} rows/s")
        shutil.rmtree(work, ignore_errors=True)
        out[name] = case
    spark.stop()
    return out


def _measured(seconds: list[float], query: Any, rows: int) -> dict[str, Any]:
    """Rows a second; and the slowest epoch in which state moved, or the first by the new table, against the median."""
    moved = {e for m in query.migrations() for e in range(m["epoch"] - max(m["epochs"], 1) + 1, m["epoch"] + 2)}
    median = statistics.median(seconds[3:])
    # The first epochs warm the JVM up; interval i is that of epoch i + 1.
    slow = [s for e, s in enumerate(seconds, start=1) if e in moved and e > 2]
    return {
        "rows_per_second": 2 * rows / median,
        "seconds": [round(s, 3) for s in seconds],
        "delay": max(slow) / median if slow else 1.0,
        "migrations": query.migrations(),
    }


def _table(data: dict[str, Any]) -> list[list[str]]:
    rows = [["workload", "units", "fastjoin against hash", "against contrand", "LI under 2.2", "heaviest / mean"]]
    for key, c in data.get("groups", {}).items():
        fast = c["fastjoin"]
        rows.append([*key.split(" "), f"{c['hash']['work'] / fast['work']:.2f}x",
                     f"{c['contrand']['work'] / fast['work']:.2f}x", f"{fast['li_under']:.0%}",
                     f"{fast['heaviest_over_mean']:.2f}"])  # fmt: skip
    for key, c in data.get("changes", {}).items():
        name, units = key.rsplit(" ", 1)
        fast = c["fastjoin"]
        rows.append([name, units, f"{c['hash']['work'] / fast['work']:.2f}x", "", f"{fast['li_under']:.0%}",
                     f"{fast['heaviest_over_mean']:.2f}"])  # fmt: skip
    for key, c in data.get("one_bucket", {}).items():
        shown = ", ".join(f"{s} {n['rows']:,.0f}" for s, n in c.items())
        rows.append([f"{key}: rows of the heaviest unit", "16", shown, "", "", ""])
    for key, c in data.get("spark", {}).items():
        shown = ", ".join(f"{s} {n['rows_per_second'] / 1e3:,.0f}k" for s, n in c.items())
        rows.append([f"{key}, on Spark: rows/s", "16", shown, "", "", ""])
    return rows


def _targets(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    out: list[tuple[str, str, bool]] = []
    runs = {**data.get("groups", {}), **data.get("changes", {})}
    if runs:
        every = [x for c in runs.values() for x in c["fastjoin"]["li"]]
        share = float(np.mean(np.array(every) < THETA))
        out.append((f"LI under {THETA} in 95% of all epochs", f"{share:.1%}", share >= 0.95))
        least = min(runs, key=lambda k: runs[k]["fastjoin"]["li_under"])
        low = runs[least]["fastjoin"]["li_under"]
        out.append((f"the same in each workload; the least is {least}", f"{low:.1%}", low >= 0.95))
    for key, c in data.get("changes", {}).items():
        out.append((f"LI under {THETA} within {SETTLED} epochs: {key}", str(c["settled"]), c["settled"] <= SETTLED))
        if key.startswith("one hot"):
            ratio = c["fastjoin"]["heaviest_over_mean"]
            out.append((f"{key}: heaviest / mean at most 1.5", f"{ratio:.2f}", ratio <= 1.5))
            plain = c["hash"]["heaviest_over_mean"]
            out.append((f"{key}: hash is over 10", f"{plain:.2f}", plain > 10))
    for key, c in data.get("groups", {}).items():
        name, units = key.split(" ")
        gain = {s: c[s]["work"] / c["fastjoin"]["work"] for s in ("hash", "contrand")}
        if name == "G00":
            out.append((f"{key}: at least 0.97x hash", f"{gain['hash']:.2f}x", gain["hash"] >= 0.97))
        elif units == "16" and min(name[1:]) >= "1":
            out.append((f"{key}: at least 2x hash", f"{gain['hash']:.2f}x", gain["hash"] >= 2))
            out.append((f"{key}: at least 1.3x contrand", f"{gain['contrand']:.2f}x", gain["contrand"] >= 1.3))
    for key, c in data.get("hypercube", {}).items():
        what = f"hypercube, {key}: within 2x of the static optimum at every epoch"
        out.append((f"{what} ({c['ratio']:.2f}x from the fourth on)", f"{c['ratio_ever']:.2f}x", c["ratio_ever"] <= 2))
        out.append((f"hypercube, {key}: under 20% moved", f"{c['moved']:.1%}", c["moved"] < 0.2))
    if "scale" in data:
        s = data["scale"]
        out.append(("1,000 units and 10M rows within 60 s", f"{s['seconds']:.1f} s", s["seconds"] <= 60))
        worst = max(s["difference"].values())
        out.append(("simulated loads within 5% of the engine's", f"{worst:.1%}", worst <= 0.05))
    for name, case in data.get("spark", {}).items():
        if name == "no skew":
            ratio = case["fastjoin"]["rows_per_second"] / case["hash"]["rows_per_second"]
            out.append(("Spark, no skew: at least 0.97x hash", f"{ratio:.2f}x", ratio >= 0.97))
        for s in ("fastjoin", "hypercube"):
            if case[s]["migrations"]:
                delay = case[s]["delay"]
                what = f"Spark, {name}, {s}: a migration delays no epoch beyond 1.5x"
                out.append((what, f"{delay:.2f}x", delay <= 1.5))
    return out
