"""A stream without Spark in a process of its own, which kills itself at STEP of EPOCH if they are given.

`python -m tests.recovery.migration_child FOLDER [STEP EPOCH]`. State moves in every epoch, a few segments at a time;
results are a file an epoch.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
from tests.streams import CASES, INPUTS, Stream, spec_of

from evenkeel.testing.forced import Forced

EPOCHS = 12


def feed() -> list[dict[str, list[dict]]]:
    dice = random.Random(7)

    def row() -> dict:
        key = dice.choice([0, 0, 1, 2, 3, 4, None])
        return {"k": key, "s": "a", "x": 0, "f": 0.0, "t": 0, "n": dice.randrange(9)}

    return [{i: [row() for _ in range(12)] for i in INPUTS} for _ in range(EPOCHS)]


def main() -> None:
    folder = Path(sys.argv[1])
    blow = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 2 else None

    def on_step(step, epoch):
        if (step, epoch) == blow:
            os.kill(os.getpid(), signal.SIGKILL)

    strategy = Forced(("hash", 3), ("one_bucket", 4), ("hash", 5), steps=1)
    stream = Stream(str(folder / "state"), CASES["equi"], spec_of(CASES["equi"]), strategy, on_step=on_step, moved=6000)
    stream.fed = feed()

    def sink(results, epoch):
        part = folder / f"{epoch:03d}.part"
        pq.write_table(results, part)
        part.replace(folder / f"{epoch:03d}.parquet")

    stream.driver.sink = sink
    for epoch in range(EPOCHS):
        stream.run(epoch)
    print([m.epoch for m in stream.driver.migrations])


if __name__ == "__main__":
    main()
