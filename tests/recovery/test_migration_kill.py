"""Against an oracle (DuckDB): killed with SIGKILL at every step of epochs that move state, a stream loses nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from tests.recovery.migration_child import EPOCHS, feed
from tests.streams import CASES, Stream, oracle, spec_of

from evenkeel.streaming.driver import STEPS
from evenkeel.testing import assert_same_rows

ROOT = Path(__file__).parents[2]


def child(folder, *kill):
    command = [sys.executable, "-m", "tests.recovery.migration_child", str(folder), *map(str, kill)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_killed_at_every_step(tmp_path):
    for epoch, step in enumerate(STEPS, start=1):
        done = child(tmp_path, step, epoch)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    done = child(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split(",")) >= EPOCHS // 4, "state moved many times"
    results = [pq.read_table(f) for f in sorted(tmp_path.glob("*.parquet"))]
    stream = Stream(str(tmp_path / "other"), CASES["equi"], spec_of(CASES["equi"]))
    stream.fed, stream.sink = feed(), dict(enumerate(results))
    assert_same_rows(stream.results(), oracle(stream)[0])
