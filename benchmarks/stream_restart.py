"""A stream join started again in a process of its own: `python -m benchmarks.stream_restart FOLDER WORK [ARCHIVE]`.

It goes on with the state and checkpoint under WORK, over the files of FOLDER, and prints how many seconds after the
start of the process, Python and the JVM included, the first batch's results had all reached the sink; when Spark was
up; the pairs; and the seconds that the units took for reading the state and joining, added up.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def age() -> float:
    """Seconds since this process was started, by the kernel's book."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    folder, work = Path(sys.argv[1]), Path(sys.argv[2])
    import evenkeel as ek
    from benchmarks.workloads.stream_feeds import NOW, Clock, streams
    from evenkeel.jvm_archive import option
    from evenkeel.spark.session import local_session

    java = {"spark__driver__extraJavaOptions": option(Path(sys.argv[3]))} if len(sys.argv) > 3 else {}
    spark = local_session(
        "evenkeel-restart", memory="2g", spark__ui__enabled="false", spark__sql__shuffle__partitions="2", **java
    )
    ready = age()
    clock = Clock()
    begun = time.perf_counter() - age()
    inputs = streams(spark, folder, "k bigint, id bigint, v double")
    join = ek.stream_join(*inputs, "k", strategy="hash", units=8, state=str(work / "state"))
    query = join.start(clock.sink, checkpoint=str(work / "checkpoint"), trigger=NOW)
    query.awaitTermination()
    units = sum(u["seconds"] for u in query.loads())
    print(f"restarted {clock.ends[0] - begun:.3f} {ready:.3f} {query.history[0].pairs} {units:.3f}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
