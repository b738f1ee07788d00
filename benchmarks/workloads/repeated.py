"""`repeated`: Events joined with Keys again and again, Zipf exponents 0 to 1.4, as in tables I to VI of the paper.

Four ways: Spark's shuffled join, Spark's `bucketBy`, SMBJoin (`buckets=`) and SMBJoinSkewed (`bucket_size=`). The
paper counts the CPU hours that a pipeline keeps allocated, so a straggler costs the time of all who wait for it; on
one machine that is `workers x projected makespan`. Both that and the CPU seconds actually spent are given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import evenkeel as ek
from benchmarks.costs import Cost, measure, typical
from benchmarks.measure import peak_mb
from benchmarks.peers import spark_bucketed, spark_equi
from benchmarks.results import FOLDER, Results
from evenkeel import charts
from evenkeel.bucketed import native
from evenkeel.bucketed.layout import break_even
from evenkeel.spark.session import local_session
from evenkeel.testing import zipf_table

SEED = 20200509
WORKERS = 32
EXPONENTS = (0.0, 0.5, 1.0, 1.2, 1.4)
EVENTS_A_KEY = 120
"""As in the paper at exponent 0."""
BUCKETS_A_WORKER = 2
"""The bucket size is the events' size over so many buckets; Spark gets the bucket count that comes of it."""
PEERS = ("shuffled", "bucketBy", "SMBJoin", "SMBJoinSkewed")
BUCKETED = ("SMBJoinSkewed", "SMBJoin", "bucketBy")
"""In the order of writing: the first one finds the bucket count."""
AS_SPARK_DOES = {native.ORDERED: "false", native.ONE_CLASS: "true"}
"""Our own joins set these in the session; Spark's run with its defaults."""
MEMORY = "memory"
WRITES = 3
"""How often tables are bucketed; medians count."""


def run(options: argparse.Namespace) -> None:
    events = 10 * options.rows
    keys = max(1, events // EVENTS_A_KEY)
    results = Results("repeated")
    setting = f"seed {SEED}, {WORKERS} workers, {events:,} events, {keys:,} keys"
    if options.only is not None:
        _take_up(results, setting, options.only)
    results.add("setting", setting)
    results.say(setting)
    exponents = [e for e in EXPONENTS if options.only in (None, f"{e:g}", str(e))]
    if exponents:
        data: Path = options.data.absolute() / f"repeated-{events}"
        spark = local_session(
            "evenkeel-bench-repeated",
            memory="6g",
            spark__sql__autoBroadcastJoinThreshold="-1",
            spark__sql__files__maxPartitionBytes="5m",
            spark__sql__files__openCostInBytes="64k",
            spark__sql__warehouse__dir=str(data / "warehouse"),
            spark__ui__retainedTasks="200000",
        )
        _keys_table(data, keys)
        for warm, exponent in enumerate(exponents):
            results.add("cases", _case(spark, options, data, events, keys, exponent, results, warm > 0))
        spark.stop()
    if options.only in (None, MEMORY):
        results.add("memory", _memory(options, results))
    results.data["cases"].sort(key=lambda c: c["exponent"])
    _draw(results)
    results.print_table(_table(results.data), _targets(results.data), _as_in_the_paper(results.data))


def _take_up(results: Results, setting: str, only: str) -> None:
    """Parts of today that were run one by one, in the same setting, stay in the report."""
    path = FOLDER / f"{results.stem}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    if before.get("setting") == setting:
        results.data["cases"] = [c for c in before["cases"] if only not in (f"{c['exponent']:g}", str(c["exponent"]))]
        results.data |= {k: v for k, v in before.items() if k == MEMORY and only != MEMORY}


def _keys_table(data: Path, keys: int) -> Path:
    path = data / "keys"
    if not path.exists():
        rng = np.random.default_rng(SEED)
        secret = pa.array([f"{a:016x}{b:016x}" for a, b in rng.integers(0, 2**62, (keys, 2))])
        _save(path, pa.table({"k": rng.permutation(keys).astype(np.int64), "secret": secret}), 8)
    return path


def _events_table(data: Path, events: int, keys: int, exponent: float) -> Path:
    path = data / f"events-{exponent}"
    if not path.exists():
        _save(path, zipf_table(events, keys, exponent, SEED + 1), 64)
    return path


def _save(path: Path, table: pa.Table, files: int) -> None:
    part = path.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    for i in range(files):
        at = i * len(table) // files
        pq.write_table(table.slice(at, (i + 1) * len(table) // files - at), part / f"{i:03d}.parquet")
    part.rename(path)


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*.parquet"))


def _case(
    spark: SparkSession,
    options: argparse.Namespace,
    data: Path,
    events: int,
    keys: int,
    exponent: float,
    results: Results,
    warm: bool,
) -> dict[str, Any]:
    source = {"events": _events_table(data, events, keys, exponent), "keys": data / "keys"}
    frames = {n: spark.read.parquet(str(p)) for n, p in source.items()}
    timings = data / "timings"
    timings.mkdir(exist_ok=True)
    size = _size(source["events"]) // (WORKERS * BUCKETS_A_WORKER)
    buckets = WORKERS * BUCKETS_A_WORKER

    def write(peer: str, name: str) -> None:
        if peer == "bucketBy":
            spark_bucketed.write(spark, source[name], f"bench_{name}", data / peer / name, buckets)
        else:
            how = {"bucket_size": size} if peer == "SMBJoinSkewed" else {"buckets": buckets}
            ek.bucketed.write(frames[name], data / peer / name, "k", mode="overwrite", **how)

    made: dict[str, dict[str, list[Cost]]] = {p: {n: [] for n in source} for p in BUCKETED}
    for turn in range(WRITES + (not warm)):
        for peer in BUCKETED:
            for name in source:
                with spark_equi.settings(spark, {"spark.sql.shuffle.partitions": str(buckets)}):
                    cost = measure(spark, partial(write, peer, name))
                if warm or turn:
                    made[peer][name].append(cost)
            if peer == "SMBJoinSkewed":
                skewed = ek.bucketed.open_table(data / peer / "events")
                buckets = skewed.buckets

    plans: dict[str, Any] = {}

    def joined(peer: str) -> DataFrame:
        if peer == "shuffled":
            return spark_bucketed.shuffled(spark, source["events"], source["keys"])
        if peer == "bucketBy":
            return spark_bucketed.bucketed(spark, "bench_events", "bench_keys")
        plans[peer] = ek.bucketed.plan(spark, data / peer / "events", data / peer / "keys")
        return replace(plans[peer], timings=str(timings)).execute()

    runs: dict[str, list[Cost]] = {p: [] for p in PEERS}
    for turn in range(1 + options.repeat):
        for peer in PEERS:
            ours = peer.startswith("SMB")
            # Spark would make fewer, larger tasks of so few bytes; a projection needs them as they are
            also = {} if ours else AS_SPARK_DOES | spark_equi.KEEP_PARTITIONS
            with spark_equi.settings(spark, {"spark.sql.shuffle.partitions": str(buckets)} | also):
                cost = measure(spark, lambda p=peer: _consume(joined(p)), timings if ours else None)
            if turn:
                runs[peer].append(cost)
    case = {
        "exponent": exponent,
        "bucket_size": size,
        "buckets": buckets,
        "shards": skewed.shards,
        "sharded": len(skewed.meta.sharded),
        "bucketing": {p: {n: _shown(c, True) for n, c in made[p].items()} for p in BUCKETED},
        "joining": {p: _shown(runs[p]) for p in PEERS},
    }
    for peer in PEERS:
        again = plans[peer].replicated_bytes if peer in plans else 0
        stored = sum(_size(p) for p in source.values()) if peer == "shuffled" else _stored(data, peer)
        case["joining"][peer] |= {"read": stored + again, "replicated": again}
    for peer in BUCKETED:
        both = case["bucketing"][peer].values()
        case["bucketing"][peer]["both"] = {k: sum(c[k] for c in both) for k in ("wall", "cpu", "makespan", "shuffled")}
        case["bucketing"][peer]["both"]["written"] = _stored(data, peer)
    case["break_even"] = {p: _break_even(case, p) for p in BUCKETED}
    results.say(
        f"{exponent:3.1f}  {buckets} buckets, {case['shards']} shards  "
        + "  ".join(
            f"{p}: wall {j['wall']:.2f} cpu {j['cpu']:.2f} makespan {j['makespan']:.3f} "
            f"longest/mean {j['longest_over_mean']:.2f}"
            for p, j in case["joining"].items()
        )
        + f"  break-even {case['break_even']}"
    )
    return case


def _shown(costs: list[Cost], writes: bool = False) -> dict[str, Any]:
    """Medians, and the spread where a query ran several times.

    What the driver's Python spends counts where a write sums up its files there, which executors do for larger ones.
    """
    one = typical(costs)
    spent = [c.cpu + (c.driver if writes else 0.0) for c in costs]
    return {
        "wall": one.wall,
        "cpu": statistics.median(spent),
        "shuffled": one.shuffled,
        "makespan": one.makespan(WORKERS),
        "longest_over_mean": one.longest_over_mean,
        "tasks": [round(t, 4) for t in one.tasks],
        "walls": [round(c.wall, 3) for c in costs],
        "cpus": [round(c, 3) for c in spent],
        "makespans": [round(c.makespan(WORKERS), 4) for c in costs],
    }


def _consume(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def _stored(data: Path, peer: str) -> int:
    if peer == "bucketBy":
        return _size(data / peer)
    return sum(ek.bucketed.open_table(data / peer / n).bytes for n in ("events", "keys"))


def _break_even(case: dict[str, Any], peer: str) -> dict[str, int | None]:
    """Formula (1): in CPU seconds spent, in CPU seconds allocated, and in bytes read, shuffled and written.

    Allocated is what the paper calls CPU hours: `workers x makespan`. The number of workers cancels out. As in the
    paper's IV-C it is the bucketing of Events alone: Keys are bucketed once, for all Events, and at the same time.
    """
    join, own, made = case["joining"]["shuffled"], case["joining"][peer], case["bucketing"][peer]["both"]
    events = case["bucketing"][peer]["events"]
    return {
        "cpu": break_even(made["cpu"], join["cpu"], own["cpu"]),
        "allocated": break_even(events["makespan"], join["makespan"], own["makespan"]),
        "io": break_even(
            join["read"] + made["shuffled"] + made["written"],
            join["read"] + join["shuffled"],
            own["read"] + own["shuffled"],
        ),
    }


def _memory(options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """A task that merges a bucket of 4 GB, in a process of its own: its peak memory."""
    folder = options.data.absolute() / "bucket-4gb"
    command = [sys.executable, "-m", "benchmarks.workloads.repeated", str(folder), "42", "4", "20000000"]
    for _ in range(2):  # the first run makes the data, which takes memory of its own
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    results.say(f"a bucket of {found['bytes'] / 1e9:.1f} GB: peak memory of the task {found['peak_mb']:.0f} MB")
    return found


def _large_bucket(folder: Path, left: int, right: int, most: int) -> None:
    """One bucket a side, of so many times 100 MB; half of the left rows and most right ones share one key.

    That key does not fit either. Its product goes on for long: after `most` rows memory no longer changes.
    """

    from evenkeel.bucketed.columns import result_columns
    from evenkeel.bucketed.metadata import KeyColumn, TableMeta
    from evenkeel.bucketed.pair import resolve
    from evenkeel.bucketed.run import run_task
    from evenkeel.bucketed.store import Store

    schema = pa.schema([("k", pa.int64()), ("payload", pa.binary())])
    spark_schema = json.dumps({"type": "struct", "fields": [{"name": n, "type": t} for n, t in
                                                             (("k", "long"), ("payload", "binary"))]})  # fmt: skip
    store = Store.at(folder)
    metas, rng = {}, np.random.default_rng(SEED)
    for side, batches in (("left", left), ("right", right)):
        name = f"{side}.parquet"
        path = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with pq.ParquetWriter(path, schema, compression="none", write_page_checksum=True) as out:
                for i in range(batches):
                    rows = 100_000
                    hot = batches // 2 <= i or side == "right"
                    k = np.full(rows, 10**9) if hot and i else np.arange(i * rows, (i + 1) * rows)
                    ends = pa.py_buffer(np.arange(0, 1000 * rows + 1, 1000, dtype=np.int32))
                    bytes_ = pa.py_buffer(rng.bytes(1000 * rows))
                    payload = pa.Array.from_buffers(pa.binary(), rows, [None, ends, bytes_])
                    out.write_table(pa.table([pa.array(k), payload], schema=schema))
        file = store.describe(name, 0, 0, ("k",))
        metas[side] = TableMeta((KeyColumn("k", "bigint"),), 1, 0, spark_schema, (file,))
    before = peak_mb()
    rows = 0
    for how in ("left_anti", "left"):
        columns = result_columns(metas["left"], metas["right"], how, ("", "_r"))
        out_schema = pa.schema([schema.field("k" if c.right_key else "payload").with_name(c.name) for c in columns])
        plan = resolve(metas["left"], metas["right"], how)
        stores = {"left": store, "right": store}
        for task in plan.tasks:
            for batch in run_task(task, stores, {"left": ("k",), "right": ("k",)}, columns, out_schema):
                rows += batch.num_rows
                if rows > most:
                    break
    peak = peak_mb()
    print(json.dumps({"bytes": metas["left"].bytes, "rows": rows, "peak_mb": peak, "before_mb": before}))


def _table(data: dict[str, Any]) -> list[list[str]]:
    """One join, all peers side by side."""
    rows = [["exponent", "shards", *(f"{p}: CPU, makespan" for p in PEERS), "longest / mean: bucketBy, SMBJoinSkewed"]]
    for c in data["cases"]:
        j = c["joining"]
        rows.append(
            [
                f"{c['exponent']:g}",
                str(c["shards"]),
                *(f"{j[p]['cpu']:.1f}, {j[p]['makespan']:.3f} s" for p in PEERS),
                f"{j['bucketBy']['longest_over_mean']:.1f}, {j['SMBJoinSkewed']['longest_over_mean']:.2f}",
            ]
        )
    return rows


def _as_in_the_paper(data: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """Tables I to VI. CPU hours there are allocated ones: here CPU seconds spent, and workers x makespan."""

    def figures(c: dict[str, Any], moved: float) -> list[str]:
        return [f"{c['wall']:.2f} s", f"{c['cpu']:.2f} s", f"{WORKERS * c['makespan']:.1f} s", f"{moved / 1e6:.0f} MB"]

    def written(case: dict[str, Any], peer: str, name: str) -> list[str]:
        made = case["bucketing"][peer][name]
        share = made["shuffled"] / max(1, case["bucketing"][peer]["both"]["shuffled"])
        stored = case["bucketing"][peer]["both"]["written"] + case["joining"]["shuffled"]["read"]
        return figures(made, made["shuffled"] + share * stored)

    def joining(case: dict[str, Any], peer: str) -> list[str]:
        j = case["joining"][peer]
        return figures(j, j["read"] + j["shuffled"])

    measures = ["wall", "CPU", "CPU allocated", "bytes moved"]
    out: list[tuple[str, list[list[str]]]] = []
    even = next((c for c in data["cases"] if c["exponent"] == 0.0), None)
    if even is not None:
        rows = [["no skew", *measures], ["Events x Keys, shuffled", *joining(even, "shuffled")]]
        for peer in ("SMBJoin", "bucketBy"):
            rows += [[f"{peer}: bucketing {n}", *written(even, peer, n)] for n in ("keys", "events")]
            rows.append([f"{peer}: joining", *joining(even, peer)])
        out.append(("Table I: one join of even data", rows))
    head = ["exponent", *measures]
    cases = data["cases"]
    e = {id(c): f"{c['exponent']:g}" for c in cases}
    out.append(("Table II: shuffled join", [head, *([e[id(c)], *joining(c, "shuffled")] for c in cases)]))
    for number, peer in (("III", "SMBJoin"), ("V", "SMBJoinSkewed")):
        more = ["shards"] if peer == "SMBJoinSkewed" else []
        rows = [[*head, *more]]
        rows += [[e[id(c)], *written(c, peer, "events"), *([str(c["shards"])] if more else [])] for c in cases]
        rows += [["Keys", *written(c, peer, "keys"), *([str(c["buckets"])] if more else [])] for c in cases[:1]]
        out.append((f"Table {number}: bucketing Events for {peer}", rows))
        following = {"III": "IV", "V": "VI"}[number]
        rows = [[*head, "n (CPU, CPU allocated, IO)"]]
        for c in cases:
            n = c["break_even"][peer]
            rows.append([e[id(c)], *joining(c, peer), f"({n['cpu']}, {n['allocated']}, {n['io']})"])
        out.append((f"Table {following}: joining by {peer}", rows))
    return out


def _targets(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    out: list[tuple[str, str, bool]] = []
    for c in data["cases"]:
        j, e = c["joining"], c["exponent"]
        skewed = j["SMBJoinSkewed"]
        if e == 0.0:
            for peer in ("SMBJoin", "SMBJoinSkewed"):
                a = j[peer]["wall"] / j["shuffled"]["wall"]
                b = j[peer]["wall"] / j["bucketBy"]["wall"]
                n = c["break_even"][peer]["cpu"]
                out.append((f"no skew, {peer}: wall at most 0.6 x the shuffled join", f"{a:.2f}", a <= 0.6))
                out.append((f"no skew, {peer}: wall at most 1.15 x bucketBy", f"{b:.2f}", b <= 1.15))
                out.append((f"no skew, {peer}: break-even at 4 joins in CPU time", f"{n}", n is not None and n <= 4))
        if e >= 1.0:
            worst = skewed["longest_over_mean"]
            out.append((f"exponent {e:g}: longest task at most 1.5 x the mean", f"{worst:.2f}", worst <= 1.5))
            for peer in ("shuffled", "bucketBy"):
                gain = j[peer]["makespan"] / skewed["makespan"]
                out.append((f"exponent {e:g}: makespan at least 4 x better than {peer}", f"{gain:.1f}", gain >= 4))
            n = c["break_even"]["SMBJoinSkewed"]["allocated"]
            out.append((f"exponent {e:g}: break-even at 1, in CPU time allocated as in the paper", f"{n}", n == 1))
    if "memory" in data:
        peak = data["memory"]["peak_mb"]
        out.append(("a task with a bucket of 4 GB stays below 512 MB", f"{peak:.0f} MB", peak <= 512))
    return out


def _draw(results: Results) -> None:
    cases = results.data["cases"]
    if len(cases) < 2:
        return
    series = {p: [c["joining"][p]["makespan"] for c in cases] for p in PEERS}
    title = f"one join, projected makespan on {WORKERS} workers"
    x = [c["exponent"] for c in cases]
    results.picture("makespan", charts.curves(title, x, series, "Zipf exponent", "seconds"))


if __name__ == "__main__":
    _large_bucket(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
