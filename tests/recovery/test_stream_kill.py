"""Against an oracle (DuckDB): a stream join that is killed with SIGKILL loses nothing and doubles nothing.

State moves in every other epoch. The process kills itself when the state knows of such an epoch and Spark's
checkpoint does not. When the sink knows of it
and the state does not is in `tests/spark/test_stream_join.py`; all steps are in `tests/property/test_stream_joins.py`;
fifty kills at random moments are in `python -m benchmarks soak`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.stream_child import expected, make_feed, results

from evenkeel.testing import assert_same_rows

ROOT = Path(__file__).parents[2]


def child(folder, how, cores, *kill):
    """Run it to its end, whichever that is, and end what it left behind: Spark's own process outlives it."""
    command = [sys.executable, "-m", "benchmarks.stream_child", str(folder), how, str(cores), *map(str, kill)]
    log = folder / "child.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        code = process.wait(600)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return code, log.read_text()


def test_killed_and_started_again(tmp_path):
    make_feed(tmp_path, 4, 200, 11)
    code, said = child(tmp_path, "full moving", 2, "committed", 1)
    assert code == -signal.SIGKILL, said[-3000:]
    code, said = child(tmp_path, "full moving", 1)  # a restart may have another number of cores
    assert code == 0, said[-3000:]
    assert "joined 1" not in said and "joined 2" in said, "an epoch that was committed was joined again"
    assert_same_rows(results(tmp_path), expected(tmp_path, "full"))
