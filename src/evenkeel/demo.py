"""The demo: one skewed join, run by Spark as it is and by Evenkeel, and where the work went in both."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import evenkeel as ek
from evenkeel import charts
from evenkeel.report import LoadReport
from evenkeel.spark.metrics import tagged, task_seconds
from evenkeel.spark.session import local_session
from evenkeel.testing import ride_hailing

SEED = 7
WORKERS = 64
ON = "l.cell = r.cell AND abs(l.wanted_at - r.seen_at) <= 300"


def run(out: Path, rows: int, console: Console) -> None:
    """Make the data, run both joins, draw. Running it again does the same again."""
    out.mkdir(parents=True, exist_ok=True)
    steps = ("data", "starting Spark", "Spark's own join", "Evenkeel's join", "checking", "picture")
    with Progress(
        SpinnerColumn(), TextColumn("{task.description:22s}"), BarColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        bars = {name: progress.add_task(name, total=1, start=False) for name in steps}

        def step(name: str) -> None:
            progress.start_task(bars[name])

        def done(name: str) -> None:
            progress.update(bars[name], completed=1)

        step("data")
        paths = _data(out / "data", rows)
        done("data")
        step("starting Spark")
        spark = local_session("evenkeel demo", spark__sql__shuffle__partitions=str(WORKERS))
        orders, taxis = (spark.read.parquet(str(p)) for p in paths)
        done("starting Spark")
        step("Spark's own join")
        before, spark_answer, spark_wall = _spark_as_it_is(spark, orders, taxis)
        done("Spark's own join")
        step("Evenkeel's join")
        started = time.perf_counter()
        plan = ek.plan(orders, taxis, ON, workers=WORKERS, scheme="heavy_light")
        after = plan.measure()
        wall = time.perf_counter() - started
        done("Evenkeel's join")
        step("checking")
        answer = _answer(plan.execute())
        done("checking")
        step("picture")
        picture = _picture(out, before, after)
        done("picture")
    if answer != spark_answer:
        raise AssertionError(f"the two joins disagree: {answer} and {spark_answer}")
    _show(console, before, after, answer, spark_wall, wall, picture)
    spark.stop()


def _data(folder: Path, rows: int) -> list[Path]:
    paths = [folder / "orders.parquet", folder / "taxis.parquet"]
    recipe = folder / "recipe.json"
    wanted = json.dumps({"rows": rows, "seed": SEED})
    if not (recipe.exists() and recipe.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path, table in zip(paths, ride_hailing(rows, rows, SEED), strict=True):
            _write(path, table)
        recipe.write_text(wanted)
    return paths


def _write(path: Path, table: pa.Table) -> None:
    path.mkdir()
    for i in range(4):
        part = table.slice(i * len(table) // 4, (i + 1) * len(table) // 4 - i * len(table) // 4)
        pq.write_table(part, path / f"part-{i}.parquet")


def _answer(joined: DataFrame) -> tuple[int, int]:
    row = joined.agg(F.count(F.lit(1)).alias("n"), F.sum(F.expr("order_id % 1000 + taxi_id")).alias("s")).collect()[0]
    return int(row["n"]), int(row["s"])


def _spark_as_it_is(
    spark: SparkSession, orders: DataFrame, taxis: DataFrame
) -> tuple[LoadReport, tuple[int, int], float]:
    """Spark's shuffled join with its defaults, but for broadcasting and for merging its 64 partitions into two.

    Both would hide the skew here: on two cores a few big tasks look as good as 64 even ones.
    """
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    old = {k: spark.conf.get(k) for k in settings}
    for k, v in settings.items():
        spark.conf.set(k, v)
    left, right = orders.alias("l"), taxis.alias("r")
    started = time.perf_counter()
    with tagged(spark) as tag:
        answer = _answer(left.join(right, F.expr(ON)))
        seconds = task_seconds(spark, tag, WORKERS)
    wall = time.perf_counter() - started
    region = F.expr(f"pmod(hash(cell), {WORKERS})").alias("region")
    rows_in = np.zeros(WORKERS)
    for side in (orders, taxis):
        for row in side.groupBy(region).count().collect():
            rows_in[row["region"]] += row["count"]
    pairs = (
        left.join(right, F.expr(ON)).groupBy(F.expr(f"pmod(hash(l.cell), {WORKERS})").alias("region")).count().collect()
    )
    rows_out = np.zeros(WORKERS)
    for row in pairs:
        rows_out[row["region"]] = row["count"]
    for k, v in old.items():
        if v is not None:
            spark.conf.set(k, v)
    return LoadReport(rows_in, rows_out, float(rows_in.sum()), seconds, "Spark as it is"), answer, wall


def _picture(out: Path, before: LoadReport, after: LoadReport) -> Path:
    panels = [
        charts.Panel("Spark as it is: work per region", before.weights, before.summary(), "#c0392b"),
        charts.Panel("Evenkeel: work per region", after.weights, after.summary(), "#2a7f9e"),
    ]
    path = out / "loads.svg"
    path.write_text(charts.svg(panels))
    return path


def _show(
    console: Console,
    before: LoadReport,
    after: LoadReport,
    answer: tuple[int, int],
    spark_wall: float,
    wall: float,
    picture: Path,
) -> None:
    top = float(max(before.weights.max(), after.weights.max()))
    for title, report, color in (("Spark as it is", before, "red"), ("Evenkeel", after, "cyan")):
        drawn = charts.bars(report.weights, height=6, width=WORKERS, top=top)
        console.print(Panel(drawn, title=f"{title}: work per region", style=color, expand=False))
    table = Table(title=f"{answer[0]:,} pairs, the same from both; {WORKERS} regions", title_justify="left")
    for column in ("", "Spark as it is", "Evenkeel"):
        table.add_column(column, justify="left" if not column else "right")
    unit = "s" if before.task_seconds is not None and after.task_seconds is not None else "rows of work"
    b, a = before.projected_makespan(WORKERS), after.projected_makespan(WORKERS)
    table.add_row("skew degree (heaviest / mean)", f"{before.skew_degree:.1f}", f"{after.skew_degree:.2f}")
    table.add_row("replication", f"{before.replication:.2f}", f"{after.replication:.2f}")
    table.add_row(f"projected makespan on {WORKERS} workers", f"{b:,.2f} {unit}", f"{a:,.2f} {unit}  ({b / a:.0f}x)")
    table.add_row("wall clock here, planning included", f"{spark_wall:.1f} s", f"{wall:.1f} s")
    console.print(table)
    console.print(f"picture: {picture}")
