"""`stream`: joins of streams against Spark's own, and join-biclique against join-matrix on TPC-H fed as streams.

Every system reads the same files with the same trigger (a file a side and batch) and drops its results in Spark's
no-op sink. A batch's time is that between the ends of two calls of the sink, so it holds everything: planning, source,
join, commit, checkpoint. The first batches warm the JVM up and are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import evenkeel as ek
from benchmarks.peers import spark_streams
from benchmarks.results import Results
from evenkeel.spark.session import local_session
from evenkeel.testing import zipf_keys

SEED = 20150531
NOW = {"availableNow": True}
MINUTE = 60_000_000
SETTINGS = {"JM16": "one_bucket", "JB16": "random", "JB16-CR4": "contrand(d=4, e=4)", "JB16-CR8": "contrand(d=8, e=8)"}
TPCH = {
    "Q5": ("l.suppkey = r.suppkey", "l.suppkey", "r.suppkey"),
    "Q7": ("l.suppkey = r.suppkey", "l.suppkey", "r.suppkey"),
    "Band": ("abs(l.orderkey - r.orderkey) <= 1", "l.orderkey", "r.orderkey"),
}


def run(options: argparse.Namespace) -> None:
    results = Results("stream")
    results.say(f"seed {SEED}, two streams, {os.cpu_count()} cores")
    spark = local_session("evenkeel-bench-stream", memory="4g", spark__sql__shuffle__partitions="2")
    only = options.only
    _warm(spark, options)
    for rows, batches in ((100_000, 14), (500_000, 6)):
        if only in (None, f"throughput:{rows}"):
            results.add("cases", _throughput(spark, options, rows, batches, results))
    if only in (None, "window"):
        results.add("window", _window(spark, options, results))
    if only in (None, "history"):
        results.add("history", _history(spark, options, results))
    for name in TPCH:
        if only in (None, name):
            results.add(f"tpch_{name}", _tpch(spark, options, name, results))
    spark.stop()
    results.print_table(_table(results.data), _targets(results.data))


class Clock:
    """Batch times: when each call of the sink ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.rows: list[int] = []

    def sink(self, df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("overwrite").save()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self.ends, self.ends[1:], strict=False)]


def _feed(folder: Path, batches: int, make: Callable[[int, str], pa.Table]) -> Path:
    """A file a batch and side, written once."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for side in ("left", "right"):
            (part / side).mkdir(parents=True)
            for b in range(batches):
                file = part / side / f"{b:05d}.parquet"
                pq.write_table(make(b, side), file)
                os.utime(file, (1e9 + b, 1e9 + b))
        part.rename(folder)
    return folder


def _streams(spark: SparkSession, folder: Path) -> list[DataFrame]:
    return [
        spark.readStream.schema(spark.read.parquet(str(folder / side)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        for side in ("left", "right")
    ]


def _ours(spark: SparkSession, folder: Path, work: Path, on: str, **options: Any) -> tuple[Clock, Any]:
    shutil.rmtree(work, ignore_errors=True)
    clock = Clock()
    join = ek.stream_join(*_streams(spark, folder), on, state=str(work / "state"), **options)
    query = join.start(clock.sink, checkpoint=str(work / "checkpoint"), trigger=NOW)
    query.awaitTermination()
    return clock, query


def _warm(spark: SparkSession, options: argparse.Namespace) -> None:
    """Let the JVM compile what every system uses before anything is timed."""
    rows, batches = 5_000, 12

    def make(b: int, side: str) -> pa.Table:
        rng = np.random.default_rng([SEED, b, side == "left"])
        return pa.table({"k": rng.integers(0, 20_000, rows), "id": np.arange(rows), "v": rng.random(rows)})

    folder, work = _feed(options.data / "stream-warm", batches, make), options.data / "stream-work"
    _ours(spark, folder, work, "k", strategy="hash", units=8)
    for store in spark_streams.STORES:
        _spark(spark, store, folder, work)


def _spark(spark: SparkSession, store: str, folder: Path, work: Path) -> Clock:
    shutil.rmtree(work, ignore_errors=True)
    clock = Clock()
    left, right = _streams(spark, folder)
    right = right.toDF("rk", "rid", "rv")
    on = left["k"] == right["rk"]
    spark_streams.start(spark, store, left, right, on, str(work / "checkpoint"), NOW, clock.sink).awaitTermination()
    return clock


def _throughput(
    spark: SparkSession, options: argparse.Namespace, rows: int, batches: int, results: Results
) -> dict[str, Any]:
    """Full history, about two partners a row by the end."""
    keys = rows * batches // 2

    def make(b: int, side: str) -> pa.Table:
        rng = np.random.default_rng([SEED, b, side == "left"])
        return pa.table({"k": rng.integers(0, keys, rows), "id": np.arange(rows) + b * rows, "v": rng.random(rows)})

    folder = _feed(options.data / f"stream-{rows}-{batches}", batches, make)
    work = options.data / "stream-work"
    case: dict[str, Any] = {"rows": rows, "batches": batches, "pairs": {}}
    warm = 3 if rows < 200_000 else 2
    for name in ("evenkeel", "rocksdb", "default"):
        if name == "evenkeel":
            clock, query = _ours(spark, folder, work, "k", strategy="hash", units=8)
            status = query.status()
            case["state"] = {"rows": status["state_rows"], "bytes": status["state_bytes"]}
            case["pairs"] = status["totals"]["pairs"]
        else:
            clock = _spark(spark, name, folder, work)
        took = clock.seconds[warm - 1 :]
        case[name] = {"seconds": [round(s, 3) for s in clock.seconds], "rows_per_second": 2 * rows / _median(took)}
        results.say(f"{rows:,} rows a side and batch: {name} {case[name]['rows_per_second']:,.0f} rows/s")
        if name == "evenkeel":
            case["parquet_bytes"] = sum(f.stat().st_size for f in folder.rglob("*.parquet"))
    return case


def _window(spark: SparkSession, options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """A hundred batches, a minute of event time each, and a window of five minutes."""
    rows, batches = options.window_rows, 101

    def make(b: int, side: str) -> pa.Table:
        rng = np.random.default_rng([SEED, b, side == "left"])
        times = rng.integers(b * MINUTE, (b + 1) * MINUTE, rows).astype("datetime64[us]")
        return pa.table({"k": zipf_keys(rows, 2 * rows, 0.5, SEED + 2 * b + (side == "left")), "id": np.arange(rows),
                         "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})  # fmt: skip

    folder = _feed(options.data / f"stream-window-{rows}", batches, make)
    clock, query = _ours(
        spark, folder, options.data / "stream-work", "k", within="5 minutes", time="ts", strategy="hash", units=8
    )
    out = _flatness(clock.seconds)
    out |= {"rows": rows, "state_rows": query.status()["state_rows"], "input_rows": 2 * rows * batches}
    results.say(f"window: 10th batch {out['tenth']:.2f} s, 100th {out['hundredth']:.2f} s, {out['state_rows']:,} rows")
    return out


def _history(spark: SparkSession, options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """A hundred batches without a window, then a restart on a machine that has nothing cached."""
    rows, batches = options.history_rows, 101

    def make(b: int, side: str) -> pa.Table:
        rng = np.random.default_rng([SEED + 1, b, side == "left"])
        keys = rng.integers(0, rows * 50, rows)
        return pa.table({"k": keys, "id": np.arange(rows) + b * rows, "v": rng.random(rows)})

    folder = _feed(options.data / f"stream-history-{rows}", batches, make)
    work = options.data / "stream-work"
    clock, query = _ours(spark, folder, work, "k", strategy="hash", units=8)
    status = query.status()
    out = _flatness(clock.seconds)
    out |= {"rows": rows, "state_rows": status["state_rows"], "state_bytes": status["state_bytes"],
            "input_rows": 2 * rows * batches}  # fmt: skip
    out["parquet_bytes"] = _merged_parquet(folder, options.data / "stream-merged.parquet")
    shutil.rmtree(Path(str(query.driver.executor.cache_folder)), ignore_errors=True)
    extra = folder / "left" / f"{batches:05d}.parquet"
    shutil.copy(folder / "left" / "00000.parquet", extra)
    begun = time.perf_counter()
    clock = Clock()
    join = ek.stream_join(*_streams(spark, folder), "k", strategy="hash", units=8, state=str(work / "state"))
    query = join.start(clock.sink, checkpoint=str(work / "checkpoint"), trigger=NOW)
    query.awaitTermination()
    extra.unlink()
    out["restart_seconds"] = clock.ends[0] - begun
    results.say(
        f"history: 10th batch {out['tenth']:.2f} s, 100th {out['hundredth']:.2f} s at {out['state_rows']:,} rows; "
        f"restart {out['restart_seconds']:.1f} s"
    )
    return out


def _merged_parquet(folder: Path, to: Path) -> int:
    """The same rows in Parquet as `pyarrow` writes them by default."""
    total = 0
    for side in ("left", "right"):
        pq.write_table(pq.read_table(folder / side), to)
        total += to.stat().st_size
    to.unlink()
    return total


def _flatness(seconds: list[float]) -> dict[str, Any]:
    """The 10th and the 100th batch, each as the median of the seven around it."""
    tenth, hundredth = _median(seconds[6:13]), _median(seconds[-7:])
    shown = [round(s, 3) for s in seconds]
    return {"tenth": tenth, "hundredth": hundredth, "ratio": hundredth / tenth, "seconds": shown}


def _tpch(spark: SparkSession, options: argparse.Namespace, name: str, results: Results) -> dict[str, Any]:
    """Q5, Q7 and Band of BiStream's section 6.1 over TPC-H, projected to the columns they need."""
    source = options.data / "tpch"
    for table in ("lineitem", "supplier", "nation", "region"):
        if not (source / f"{table}.parquet").exists():
            tool = Path(sys.executable).with_name("tpchgen-cli")
            command = [str(tool), "parquet", "-s", "1", f"--tables={table}", f"--output-dir={source}"]
            subprocess.run(command, check=True, timeout=900)
    left, right = _inputs(source, name, options.tpch_rows)
    batches = 8

    def make(b: int, side: str) -> pa.Table:
        rows = left if side == "left" else right
        at = len(rows) * b // batches
        return rows.slice(at, len(rows) * (b + 1) // batches - at)

    folder = _feed(options.data / f"stream-{name}-{options.tpch_rows}", batches, make)
    out: dict[str, Any] = {"rows": {"left": len(left), "right": len(right)}}
    for setting, strategy in SETTINGS.items():
        if name == "Band" and strategy.startswith("contrand"):
            continue  # routed by key, and a band has none
        clock, query = _ours(
            spark, folder, options.data / "stream-work", TPCH[name][0], strategy=strategy, units=16
        )
        status = query.status()
        loads = query.loads()
        received = [sum(u["received"].values()) for u in loads]
        out[setting] = {
            "rows_per_second": sum(out["rows"].values()) / batches / _median(clock.seconds[1:]),
            "state_rows": status["state_rows"],
            "replication": status["state_rows"] / sum(out["rows"].values()),
            "sent": sum(received) / max(1, sum(query.driver.last.rows.values())),
            "heaviest_over_mean": max(received) / (sum(received) / len(received)),
            "pairs": status["totals"]["pairs"],
        }
        results.say(f"{name} {setting}: " + ", ".join(f"{k} {v:,.2f}" for k, v in out[setting].items()))
    assert len({out[s]["pairs"] for s in SETTINGS if s in out}) == 1, "the settings disagree"
    return out


def _inputs(source: Path, name: str, rows: int) -> tuple[pa.Table, pa.Table]:
    with duckdb.connect() as db:
        nations = (
            f"SELECT n_nationkey FROM '{source}/nation.parquet' JOIN '{source}/region.parquet' "
            "ON n_regionkey = r_regionkey WHERE r_name = 'ASIA'"
            if name == "Q5"
            else f"SELECT n_nationkey FROM '{source}/nation.parquet' WHERE n_name IN ('FRANCE', 'GERMANY')"
        )
        line = f"'{source}/lineitem.parquet'"
        if name == "Band":
            left = f"SELECT l_orderkey AS orderkey FROM {line} WHERE l_shipmode = 'TRUCK' AND l_quantity > 48"
            right = f"SELECT l_orderkey AS orderkey FROM {line} WHERE l_shipinstruct = 'NONE'"
        else:
            left = f"SELECT s_suppkey AS suppkey, s_nationkey FROM '{source}/supplier.parquet' JOIN ({nations}) " \
                   "ON s_nationkey = n_nationkey"  # fmt: skip
            right = f"SELECT l_suppkey AS suppkey, l_orderkey, l_extendedprice, l_discount FROM {line}"
        sample = f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE (7)"
        tables = [db.execute(f"{sql} {sample}").to_arrow_table() for sql in (left, right)]
    return tables[0], tables[1]


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _table(data: dict[str, Any]) -> list[list[str]]:
    rows = [["rows a side and batch", "Evenkeel", "Spark, RocksDB", "Spark, default store", "pairs"]]
    for c in data["cases"]:
        speeds = [f"{c[n]['rows_per_second'] / 1e3:,.0f}k rows/s" for n in ("evenkeel", "rocksdb", "default")]
        rows.append([f"{c['rows']:,}", *speeds, f"{c['pairs']:,}"])
    return rows


def _targets(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    out = []
    for c in data["cases"]:
        ratio = c["evenkeel"]["rows_per_second"] / c["rocksdb"]["rows_per_second"]
        least = 8 if c["rows"] >= 500_000 else 5
        out.append((f"at least {least}x Spark with RocksDB at {c['rows']:,}", f"{ratio:.1f}x", ratio >= least))
        state = c["state"]["rows"] / (2 * c["rows"] * c["batches"])
        out.append((f"state at most 1.1x the input at {c['rows']:,}", f"{state:.2f}x", state <= 1.1))
    for key, most in (("window", 1.2), ("history", 1.5)):
        if key in data:
            ratio = data[key]["ratio"]
            what = f"100th batch at most {most}x the 10th, {key}, {data[key]['state_rows']:,} rows stored"
            out.append((what, f"{ratio:.2f}x", ratio <= most))
    if "history" in data:
        h = data["history"]
        ratio = h["state_bytes"] / h["parquet_bytes"]
        out.append(("state on disk at most 1.5x the rows' Parquet size", f"{ratio:.2f}x", ratio <= 1.5))
        out.append((f"first result within 10 s of a restart at {h['state_rows']:,} rows",
                    f"{h['restart_seconds']:.1f} s", h["restart_seconds"] <= 10))  # fmt: skip
    for name in TPCH:
        found = data.get(f"tpch_{name}")
        if found:
            matrix, clique = found["JM16"]["replication"], found["JB16"]["replication"]
            out.append((f"{name}: join-biclique's state at most 1.1x the input", f"{clique:.2f}x", clique <= 1.1))
            out.append((f"{name}: join-matrix's state 4x the input, as formula (2) says", f"{matrix:.2f}x",
                        abs(matrix - 4) < 0.01))  # fmt: skip
    return out
