"""Against an oracle (DuckDB): a stream join that is killed with SIGKILL loses nothing and doubles nothing.

The process kills itself at steps of the commit order where a second system already knows of the epoch: when the sink
has the results and the state has not, and when the state has them and Spark's checkpoint has not. All other steps
are in `tests/property/test_stream_joins.py`; fifty kills at random moments are in `python -m benchmarks soak`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.stream_child import expected, make_feed, results
from deltalake import DeltaTable

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


@pytest.mark.parametrize(("how", "kills"), [("full", [("sunk", 1), ("committed", 3)])])
def test_killed_and_started_again(tmp_path, how, kills):
    make_feed(tmp_path, 5, 200, 11)
    for i, kill in enumerate(kills):
        code, said = child(tmp_path, how, 2 - i % 2, *kill)  # a restart may have another number of cores
        assert code == -signal.SIGKILL, said[-3000:]
    code, said = child(tmp_path, how, 2)
    assert code == 0, said[-3000:]
    assert "joined 3" not in said, "an epoch that was committed was joined again"
    assert_same_rows(results(tmp_path), expected(tmp_path, how))
    state = DeltaTable(str(tmp_path / "state"))
    listed = {f for f in state.file_uris()}
    on_disk = {str(p) for p in (tmp_path / "state").glob("side=*/unit=*/*.parquet")}
    assert len(listed) < len(on_disk), "the killed attempt left files that nobody refers to"
