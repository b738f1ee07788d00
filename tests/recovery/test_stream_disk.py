"""Against an oracle (DuckDB): a disk that is really full, and one that is really read-only, stop a stream join with a
clear error and lose nothing; once the cause is gone it goes on.

The disk is a small tmpfs in a mount namespace of a child process, where mounting is allowed; everywhere else the
kernel's limit on a file's size stands in for a full disk. No write is faked.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHILD = """
import contextlib, resource, signal, subprocess, sys
from tests.streams import CASES, INPUTS, Stream, oracle, spec_of
from evenkeel.errors import EvenkeelError
from evenkeel.testing import assert_same_rows

how, disk = sys.argv[1:3]

def mount(*options):
    subprocess.run(["mount", *options], check=True)

@contextlib.contextmanager
def full():
    filler = open(f"{disk}/filler", "wb", buffering=0)
    with contextlib.suppress(OSError):
        while True:
            filler.write(bytes(512))
    yield "No space left"
    filler.close()
    subprocess.run(["rm", f"{disk}/filler"], check=True)

@contextlib.contextmanager
def read_only():
    mount("-o", "remount,ro", disk)
    yield "Read-only file system"
    mount("-o", "remount,rw", disk)

@contextlib.contextmanager
def limited():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
    yield "File too large"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

if how != "limited":
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", disk)
case = CASES["equi"]
stream = Stream(f"{disk}/state", case, spec_of(case), "contrand", units=2)
rows = lambda n: [{"k": i % 7, "s": "a" * 50, "x": i, "f": 0.5, "t": i, "n": i} for i in range(n)]
for n in (20, 30):
    stream.feed({i: rows(n) for i in INPUTS})
before = set(stream.sink)
with {"full": full, "read_only": read_only, "limited": limited}[how]() as why:
    stream.fed.append({i: rows(40) for i in INPUTS})
    try:
        stream.run(2)
        sys.exit("nothing failed")
    except EvenkeelError as error:
        assert why in str(error) and "nothing is lost" in str(error) and "Hint:" in str(error), error
assert set(stream.sink) == before, "results of an epoch that was not joined"
stream.open()
assert stream.driver.state.snapshot.epoch == 1
assert stream.run(1) is None
stream.run(2)
stream.feed({i: rows(10) for i in INPUTS})
assert_same_rows(stream.results(), oracle(stream)[0])
print("recovered")
"""


def may_mount() -> bool:
    try:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize("how", ["full", "read_only", "limited"])
def test_the_disk_fails_and_recovers(tmp_path, how):
    if how != "limited" and not may_mount():
        pytest.skip("upstream: this machine does not let us mount a disk")
    alone = ["unshare", "-m"] if how != "limited" else []
    done = subprocess.run(
        [*alone, sys.executable, "-c", CHILD, how, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "recovered" in done.stdout, done.stdout + done.stderr[-3000:]
