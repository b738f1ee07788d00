"""A stream join in a process of its own, to be killed: `python -m benchmarks.stream_child FOLDER [STEP EPOCH]`.

It joins what `make_feed` wrote into FOLDER, exactly once into a Delta table there, and kills itself with SIGKILL at
STEP of EPOCH if they are given. Whoever starts it again and again compares `results` with `expected`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MINUTE = 60_000_000
WINDOW = 90_000_000


def make_feed(folder: Path, batches: int, rows: int, seed: int) -> None:
    """A file a batch and side; times move on by a minute a batch, so that no row is late."""
    rng = np.random.default_rng(seed)
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True)
        for batch in range(batches):
            path = folder / side / f"{batch:05d}.parquet"
            times = rng.integers(batch * MINUTE, (batch + 1) * MINUTE, rows)
            table = {
                "k": np.where(rng.random(rows) < 0.1, 0, rng.integers(0, rows * batches // 4, rows)),
                "ts": times.astype("datetime64[us]"),
                "n": np.arange(rows) + batch * rows,
            }
            pq.write_table(pa.table(table).cast(pa.schema([
                ("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())
            ])), path)  # fmt: skip
            os.utime(path, (1e9 + batch, 1e9 + batch))


def expected(folder: Path, how: str) -> list[tuple[Any, ...]]:
    """What the results must be once all batches have been joined, from the files alone."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for side in ("left", "right"):
            db.execute(
                f"CREATE TABLE {side[0]} AS SELECT *, epoch_us(ts) AS t FROM read_parquet('{folder}/{side}/*.parquet')"
            )
        if how in ("inner", "moving"):
            return db.execute("SELECT l.n, r.n FROM l JOIN r USING (k)").fetchall()
        near = f"l.k = r.k AND abs(l.t - r.t) <= {WINDOW}"
        last = len(list((folder / "left").glob("*.parquet"))) - 2
        newest = [
            db.execute(f"SELECT max(t) FROM {s} WHERE t < {(last + 1) * MINUTE}").fetchall()[0][0] for s in "lr"
        ]
        due = min(newest) - WINDOW
        pairs = db.execute(f"SELECT l.n, r.n FROM l JOIN r ON {near}").fetchall()
        left = db.execute(f"SELECT n, NULL FROM l WHERE t < {due} AND NOT EXISTS (FROM r WHERE {near})").fetchall()
        right = db.execute(f"SELECT NULL, n FROM r WHERE t < {due} AND NOT EXISTS (FROM l WHERE {near})").fetchall()
        return pairs + left + right


def results(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(folder / "out")).to_pyarrow_table(columns=["n", "n_r"])


def main() -> None:
    import evenkeel as ek
    from evenkeel.spark.session import local_session
    from evenkeel.testing.forced import Forced

    folder, how, cores = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    step, epoch = (sys.argv[4], int(sys.argv[5])) if len(sys.argv) > 4 else ("", -1)
    spark = local_session(
        "evenkeel-child", cores=cores, memory="1g", spark__ui__enabled="false", spark__log__level="OFF",
        spark__sql__shuffle__partitions=str(cores), spark__sql__codegen__wholeStage="false",
    )  # fmt: skip
    streams = [
        spark.readStream.schema("k bigint, ts timestamp, n bigint").option("maxFilesPerTrigger", 1).parquet(
            str(folder / side)
        )
        for side in ("left", "right")
    ]  # fmt: skip
    window = {"within": "90 seconds", "time": "ts"} if how.startswith("full") else {}
    join = ek.stream_join(
        *streams, on="k", how="full" if how.startswith("full") else "inner", strategy="contrand", units=4,
        state=str(folder / "state"), **window,
    )  # fmt: skip
    if how == "moving":  # state moves in every epoch, a little of it at a time
        join.strategy = Forced(("hash", 4), ("one_bucket", 6), ("hash", 3), ("contrand", 5), steps=1)
        join.moved = 20_000
    elif how == "full moving":
        join.strategy = Forced(("hash", 4), ("hash", 3), together=True)

    def on_step(at: str, number: int) -> None:
        print(f"{at} {number}", flush=True)
        if (at, number) == (step, epoch):
            os.kill(os.getpid(), signal.SIGKILL)

    join.on_step = on_step
    sink = ek.sinks.delta(str(folder / "out"))
    join.start(sink, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}).awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
