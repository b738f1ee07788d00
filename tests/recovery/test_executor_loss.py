"""Implementation against implementation: a join that loses an executor half-way gives what Spark's own join gives.

The inputs come out of a shuffle, so a task that is run again sees their rows in another order; the hot keys are
copied to several regions. Were a row's region not a function of the row, rows would be lost or doubled here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.quick import FROM_ARCHIVE, QUICK_JVM

WORKERS, PARTS = 8, 5


def test_an_executor_is_killed_while_its_map_outputs_are_read(tmp_path):
    import pyspark

    home = tmp_path / "spark"  # executors write to its work folder
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(tmp_path)}
    local["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, __file__], env=os.environ | local, cwd=tmp_path, text=True, capture_output=True, timeout=480
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("recovered")] == [
        "recovered: full", "recovered: multi"
    ]  # fmt: skip


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("evenkeel-recovery")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.dynamicAllocation.enabled": "false",
        # Without Spark's own check of map outputs, which would hide a row that moved by joining all regions anew.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        "spark.sql.shuffle.partitions": str(PARTS),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.executor.extraJavaOptions": f"{QUICK_JVM} {FROM_ARCHIVE}",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        for how in ("full", "multi"):  # a full join is an inner one and more
            lose_an_executor(spark, how)
            print(f"recovered: {how}", flush=True)
    finally:
        spark.stop()


def lose_an_executor(spark, how):
    from pyspark.sql import functions as F

    import evenkeel as ek

    left, right = grouped(spark, 10_000, "a", 0), grouped(spark, 8000, "b", 100)
    if how == "multi":
        names = spark.range(40).select((F.col("id") % 20).alias("k"), "id")
        plan = ek.plan_multi({"l": left, "r": right, "n": names}, "k", scheme="random", workers=WORKERS)
        assert not any(plan.tree.facts.stable_order[:2])
        assert all(plan.layout.uses_rows(i) for i in (0, 1))
        expected = fingerprint(left.join(right, "k").join(names, "k"))
    else:
        plan = ek.plan(left, right, "k", how, scheme="heavy_light", workers=WORKERS)
        assert not any(plan.tree.facts.stable_order.values())
        assert all(plan.layout.replicates(side) for side in ("left", "right"))
        expected = fingerprint(left.join(right, "k", how))

    before, result = executors(spark), []
    assert len(before) == 2
    running = threading.Thread(target=lambda: result.append(fingerprint(plan.execute(), sleep=True)), daemon=True)
    running.start()
    stage, tasks = reading(spark)
    victim = before.pop()
    os.kill(victim, signal.SIGKILL)
    running.join(120)
    seen = spark.sparkContext.statusTracker().getStageInfo(stage)
    print(f"{how}: executor {victim} killed, {seen}, {result}", flush=True)
    assert seen.currentAttemptId > 0, "no map output had to be made again"
    assert seen.numTasks < tasks, "no region that was joined before was kept"
    assert result == [expected]
    await_two(spark, victim)


def grouped(spark, rows, name, missing):
    """Rows out of a shuffle: a tenth has key 0, a tenth key 1, the others are nearly unique."""
    from pyspark.sql import functions as F

    key = F.expr(f"CASE WHEN id % 10 < 2 THEN id % 10 ELSE id + {missing} END")
    return spark.range(rows).groupBy((F.col("id") * 3).alias(name)).agg(F.max(key).alias("k")).select("k", name)


def fingerprint(df, sleep=False):
    """How many rows, and the sum of their hashes; with sleep a task takes a while."""
    from pyspark.sql import functions as F

    rows = F.expr("xxhash64(coalesce(k, -1L), coalesce(a, -1L), coalesce(b, -1L))").alias("h")
    nap = "CASE WHEN pmod(h, 1000) = 0 THEN reflect('java.lang.Thread', 'sleep', 3L) END" if sleep else "NULL"
    df = df.select(rows).select("h", F.expr(nap).alias("nap"))
    total = F.expr("sum(cast(h AS decimal(38, 0)))")
    row = df.agg(F.count("*"), total, F.count("nap")).collect()[0]
    return row[0], int(row[1])


def reading(spark):
    """Wait until some regions are joined and others are not; the stage that joins them, and its tasks."""
    tracker = spark.sparkContext.statusTracker()
    for _ in range(6000):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info and info.numTasks >= WORKERS and info.numCompletedTasks >= 4:
                return stage, info.numTasks
        time.sleep(0.01)
    raise AssertionError("the regions were never joined")


def executors(spark):
    """Process ids of this session's executors: descendants of this very process."""
    mine = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"CoarseGrainedExecutorBackend" in line and spark.sparkContext.applicationId.encode() in line:
                mine += [int(entry.name)] if os.getpid() in ancestors(int(entry.name)) else []
        except OSError:
            continue  # it has just ended
    return mine


def ancestors(pid):
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def await_two(spark, gone):
    """The cluster starts another executor in place of the lost one."""
    for _ in range(300):
        if len(executors(spark)) == 2 and gone not in executors(spark):
            return
        time.sleep(0.1)
    pytest.fail("the executor was not replaced")


if __name__ == "__main__":
    main()
