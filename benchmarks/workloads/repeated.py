"""`repeated`: Events joined with Keys again and again, Zipf exponents 0 to 1.4, as in tables I to VI of the paper.

Four ways: Spark's shuffled join, Spark's `bucketBy`, SMBJoin (`buckets=`) and SMBJoinSkewed (`bucket_size=`). The
paper counts the CPU hours that a pipeline keeps allocated, so a straggler costs the time of all who wait for it; on
one machine that is `workers x projected makespan`. Both that and the CPU seconds actually spent are given.
"""

from __future__ import annotations

import argparse
import json
import shutil
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
from benchmarks.costs import Cost, measure
from benchmarks.peers import spark_bucketed, spark_equi
from benchmarks.results import Results
from evenkeel import charts
from evenkeel.bucketed.layout import break_even
from evenkeel.spark.session import local_session
from evenkeel.testing import zipf_table

SEED = 20200509
WORKERS = 32
EXPONENTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)
EVENTS_A_KEY = 120
"""As in the paper at exponent 0."""
BUCKETS_WANTED = 40
"""The bucket size is the events' size over this; bucket counts are then 48 without skew."""
PEERS = ("shuffled", "bucketBy", "SMBJoin", "SMBJoinSkewed")


def run(options: argparse.Namespace) -> None:
    results = Results("repeated")
    events = 10 * options.rows
    keys = max(1, events // EVENTS_A_KEY)
    results.say(f"seed {SEED}, {WORKERS} workers, {events:,} events, {keys:,} keys")
    data: Path = options.data.absolute() / f"repeated-{events}"
    spark = local_session(
        "evenkeel-bench-repeated",
        memory="6g",
        spark__sql__shuffle__partitions="48",
        spark__sql__autoBroadcastJoinThreshold="-1",
        spark__sql__files__maxPartitionBytes="4m",
        spark__sql__files__openCostInBytes="64k",
        spark__sql__warehouse__dir=str(data / "warehouse"),
        spark__ui__retainedTasks="200000",
    )
    _keys_table(data, keys)
    cases = [e for e in EXPONENTS if options.only in (None, str(e))]
    for exponent in cases:
        results.add("cases", _case(spark, options, data, events, keys, exponent, results))
    if options.only is None:
        spark.stop()
        results.add("memory", _memory(options, results))
    _draw(results)
    results.print_table(_table(results.data), _targets(results.data))


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
) -> dict[str, Any]:
    source = {"events": _events_table(data, events, keys, exponent), "keys": data / "keys"}
    frames = {n: spark.read.parquet(str(p)) for n, p in source.items()}
    timings = data / "timings"
    timings.mkdir(exist_ok=True)
    size = _size(source["events"]) // BUCKETS_WANTED

    def ours(kind: str, name: str, **how: Any) -> Any:
        return ek.bucketed.write(frames[name], data / kind / name, "k", mode="overwrite", **how)

    def bucket(peer: str) -> dict[str, Cost]:
        """The costs of bucketing both tables, measured once the code is warm."""
        if peer == "shuffled":
            return {}
        made = {}
        for name in source:
            if peer == "bucketBy":
                action: Any = partial(
                    spark_bucketed.write, spark, source[name], f"bench_{name}", data / peer / name, buckets
                )
            elif peer == "SMBJoin":
                action = partial(ours, peer, name, buckets=buckets)
            elif name == "events":
                action = partial(ours, peer, name, bucket_size=size)
            else:  # of one bucket count, as bucket sizes in proportion give: Spark's own merge wants equal counts
                action = partial(ours, peer, name, buckets=buckets)
            for _ in range(2 if exponent == 0.0 else 1):
                made[name] = measure(spark, action, WORKERS)
        return made

    ours("SMBJoinSkewed", "events", bucket_size=size)
    buckets = ek.bucketed.open_table(data / "SMBJoinSkewed" / "events").buckets
    spark.conf.set("spark.sql.shuffle.partitions", str(buckets))
    case: dict[str, Any] = {"exponent": exponent, "buckets": buckets, "bucketing": {}, "joining": {}}
    for peer in PEERS:
        case["bucketing"][peer] = {n: c.to_dict() for n, c in bucket(peer).items()}
    skewed = ek.bucketed.open_table(data / "SMBJoinSkewed" / "events")
    case["shards"] = skewed.shards

    def joined(peer: str) -> DataFrame:
        if peer == "shuffled":  # Spark would make fewer, larger tasks of these bytes; a makespan needs them as they are
            return spark_bucketed.shuffled(spark, source["events"], source["keys"])
        if peer == "bucketBy":
            return spark_bucketed.bucketed(spark, "bench_events", "bench_keys")
        plan = ek.bucketed.plan(spark, data / peer / "events", data / peer / "keys")
        case["replicated"] = plan.replicated_bytes
        return replace(plan, timings=str(timings)).execute()

    runs: dict[str, list[Cost]] = {p: [] for p in PEERS}
    for turn in range(1 + options.repeat):
        for peer in PEERS:
            inside = timings if peer.startswith("SMB") else None
            with spark_equi.settings(spark, spark_equi.KEEP_PARTITIONS if peer == "shuffled" else {}):
                cost = measure(spark, lambda p=peer: _consume(joined(p)), WORKERS, inside)
            if turn:
                runs[peer].append(cost)
    read = _size(source["events"]) + _size(source["keys"])
    for peer, costs in runs.items():
        best = sorted(costs, key=lambda c: c.cpu)[len(costs) // 2]
        shown = best.to_dict() | {"wall": sorted(c.wall for c in costs)[len(costs) // 2]}
        shown["walls"] = [round(c.wall, 3) for c in costs]
        shown["cpus"] = [round(c.cpu, 3) for c in costs]
        shown["makespan"] = sorted(c.makespan for c in costs)[len(costs) // 2]
        shown["longest_over_mean"] = sorted(c.longest_over_mean for c in costs)[len(costs) // 2]
        again = case["replicated"] if peer == "SMBJoinSkewed" else 0
        shown["read"] = (read if peer == "shuffled" else _stored(data, peer)) + again
        case["joining"][peer] = shown
    case["break_even"] = {p: _break_even(case, p) for p in PEERS[1:]}
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


def _consume(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def _stored(data: Path, peer: str) -> int:
    if peer == "bucketBy":
        return _size(data / peer)
    return sum(ek.bucketed.open_table(data / peer / n).bytes for n in ("events", "keys"))


def _break_even(case: dict[str, Any], peer: str) -> dict[str, int | None]:
    """Formula (1), in CPU seconds spent, in CPU seconds allocated, and in bytes shuffled and read."""
    join, own = case["joining"]["shuffled"], case["joining"][peer]
    made = list(case["bucketing"][peer].values())
    return {
        "cpu": break_even(sum(m["cpu"] for m in made), join["cpu"], own["cpu"]),
        "allocated": break_even(sum(m["makespan"] for m in made), join["makespan"], own["makespan"]),
        "io": break_even(
            sum(m["shuffled"] for m in made) + own["read"] * 2,
            join["shuffled"] + join["read"],
            own["shuffled"] + own["read"],
        ),
    }


def _memory(options: argparse.Namespace, results: Results) -> dict[str, Any]:
    """A task that merges a bucket of 4 GB, in a process of its own: its peak memory."""
    folder = options.data.absolute() / "bucket-4gb"
    command = [sys.executable, "-m", "benchmarks.workloads.repeated", str(folder)]
    for _ in range(2):  # the first run makes the data, which takes memory of its own
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    results.say(f"a bucket of {found['bytes'] / 1e9:.1f} GB: peak memory of the task {found['peak_mb']:.0f} MB")
    return found


def _bucket_of_4gb(folder: Path) -> None:
    """One bucket a side; half of the left rows and 300,000 right rows share one key, which does not fit either."""
    import resource

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
    for side, batches in (("left", 42), ("right", 4)):
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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = 0
    for how in ("left_anti", "left"):
        columns = result_columns(metas["left"], metas["right"], how, ("", "_r"))
        out_schema = pa.schema([schema.field("k" if c.right_key else "payload").with_name(c.name) for c in columns])
        plan = resolve(metas["left"], metas["right"], how)
        stores = {"left": store, "right": store}
        for task in plan.tasks:
            for batch in run_task(task, stores, {"left": ("k",), "right": ("k",)}, columns, out_schema):
                rows += batch.num_rows
                if rows > 20_000_000:  # the product of the hot key goes on for long; memory no longer changes
                    break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"bytes": metas["left"].bytes, "rows": rows, "peak_mb": peak, "before_mb": before}))


def _table(data: dict[str, Any]) -> list[list[str]]:
    head = ["exponent", "shards", *(f"{p}: CPU, makespan" for p in PEERS), "longest / mean: bucketBy, Skewed",
            "bucketing CPU: bucketBy, SMB, Skewed", "n: SMB, Skewed (CPU)", "n: Skewed (allocated)"]  # fmt: skip
    rows = [head]
    for c in data["cases"]:
        j = c["joining"]
        made = {p: sum(m["cpu"] for m in c["bucketing"][p].values()) for p in PEERS[1:]}
        rows.append(
            [
                f"{c['exponent']:g}",
                str(c["shards"]),
                *(f"{j[p]['cpu']:.1f}, {j[p]['makespan']:.2f} s" for p in PEERS),
                f"{j['bucketBy']['longest_over_mean']:.1f}, {j['SMBJoinSkewed']['longest_over_mean']:.2f}",
                ", ".join(f"{made[p]:.1f}" for p in PEERS[1:]),
                f"{c['break_even']['SMBJoin']['cpu']}, {c['break_even']['SMBJoinSkewed']['cpu']}",
                f"{c['break_even']['SMBJoinSkewed']['allocated']}",
            ]
        )
    return rows


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
            out.append((f"exponent {e:g}: break-even at 1 in CPU time allocated", f"{n}", n == 1))
            n = c["break_even"]["SMBJoinSkewed"]["cpu"]
            out.append((f"exponent {e:g}: break-even at 1 in CPU time spent", f"{n}", n == 1))
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
    _bucket_of_4gb(Path(sys.argv[1]))
