"""Flink's regular SQL join as a peer: `apache-flink` of PyPI, in an environment of its own that is made when asked for.

Flink reads the same rows as CSV, the only bounded files its package can read beside JSON, in streaming mode on as many
slots as there are cores, with state on the heap and no checkpoints, and drops its results. Each job runs twice in one
JVM and the better run counts. Reading the files alone is timed too: with that time taken off, only the join is
compared. The environment is under `EVENKEEL_CACHE`, or `~/.cache/evenkeel`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq

VERSION = "2.3.0"
JOB = Path(__file__).with_name("flink_job.py")


def python() -> Path:
    """The Python of Flink's environment, made at the first call; takes a minute or two and a network."""
    root = Path(os.environ.get("EVENKEEL_CACHE") or Path.home() / ".cache" / "evenkeel") / f"flink-{VERSION}"
    found, done = root / "bin" / "python", root / "done"
    if not done.exists():
        venv.create(root, with_pip=True, clear=True)
        command = [str(found), "-m", "pip", "install", "-q", f"apache-flink=={VERSION}"]
        subprocess.run(command, check=True, timeout=1800)
        done.touch()
    return found


def run(folder: Path, data: Path, rows: int) -> dict[str, Any]:
    """`rows_per_second` of reading and joining, and `joining`, the same without the time that reading alone takes."""
    job = [str(python()), str(JOB), str(_as_csv(folder, data)), str(os.cpu_count())]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    done = subprocess.run(
        job, capture_output=True, text=True, timeout=900, cwd=data, env=environment | {"JVM_ARGS": "-Xmx8g"}
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not said:
        sys.exit(f"Flink failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    took = json.loads(said[-1])
    join, scan = min(took["join"]), min(took["scan"])
    return {
        "version": VERSION, "rows": rows, "seconds": took, "results": took["results"],
        "rows_per_second": rows / join, "joining": rows / max(join - scan, 1e-3),
    }  # fmt: skip


def _as_csv(folder: Path, data: Path) -> Path:
    """The same files as CSV, written once."""
    to = data / f"{folder.name}-csv"
    for file in sorted(folder.rglob("*.parquet")):
        target = to / file.parent.name / f"{file.stem}.csv"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            csv.write_csv(pq.read_table(file), target, csv.WriteOptions(include_header=False))
    return to.absolute()
