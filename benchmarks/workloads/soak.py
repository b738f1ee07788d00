"""`soak`: a stream join killed with SIGKILL at random moments; afterwards its results are exactly the oracle's."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.results import Results
from benchmarks.stream_child import expected, make_feed, results
from evenkeel.testing import multiset

SEED = 20261115
BATCHES, ROWS = 30, 400


def run(options: argparse.Namespace) -> None:
    report = Results("soak")
    dice = random.Random(SEED)
    report.say(
        f"seed {SEED}, {options.kills} kills at random moments, as many again while state moves, {BATCHES} batches of "
        f"{ROWS} rows a side"
    )
    for how, share in (("inner", 2), ("full", 2), ("moving", 1)):
        kills, finished, steps = options.kills // share, 0, []
        feed = 0
        folder = _fresh(options.data, how, feed)
        while len(steps) < kills:
            step = _killed(folder, how, dice)
            if step is None:  # it came to its end before the blow: judge it, and begin again
                _judge(folder, how)
                finished, feed = finished + 1, feed + 1
                folder = _fresh(options.data, how, feed)
                continue
            steps.append(step)
            report.say(f"{how}: kill {len(steps)} after '{step}'")
        while _killed(folder, how, None) is not None:
            raise AssertionError("an undisturbed run did not end")
        rows = _judge(folder, how)
        report.add("cases", {"how": how, "kills": len(steps), "after": steps, "runs": finished + 1, "rows": rows})
    cases = report.data["cases"]
    targets = [(f"{c['how']}: results are the oracle's after {c['kills']} kills", f"{c['rows']:,} rows", True)
               for c in cases]  # fmt: skip
    shown = [[c["how"], str(c["kills"]), str(c["rows"])] for c in cases]
    report.print_table([["join", "kills", "rows"], *shown], targets)


def _fresh(data: Path, how: str, number: int) -> Path:
    folder = data / f"soak-{how}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    make_feed(folder, BATCHES, ROWS, SEED + number)
    return folder


def _judge(folder: Path, how: str) -> int:
    got, want = multiset(results(folder)), multiset(expected(folder, how))
    assert got == want, f"{sum((got - want).values())} rows too many, {sum((want - got).values())} missing"
    return sum(got.values())


def _killed(folder: Path, how: str, dice: random.Random | None) -> str | None:
    """Start it, kill it and all it started within some seconds; the last step it reached, None if it ended first."""
    log = folder / "child.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stream_child", str(folder), how, "2"], stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, start_new_session=True, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        try:
            begun = time.perf_counter()
            while process.poll() is None and "begin" not in log.read_text():
                time.sleep(0.05)
            slow = time.perf_counter() - begun  # on a busy machine everything takes longer, the way to the kill too
            process.wait(None if dice is None else dice.uniform(0.0, 1.5 * slow))
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = [line for line in log.read_text().splitlines() if line.split(" ")[0] in _STEPS]
    if process.returncode == 0:
        return None
    assert process.returncode == -signal.SIGKILL, log.read_text()[-3000:]
    return said[-1] if said else "start"


_STEPS = ("begin", "routed", "joined", "sunk", "reported", "adapted", "committed", "cleaned")
