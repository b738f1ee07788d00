"""`evenkeel jvm-archive`: the classes of Spark in a file that the JVM maps when it starts, instead of reading them.

A third of the time from the start of a process to the first result of a restarted stream goes into finding, reading
and verifying some twenty thousand classes. Java can keep them as it holds them in memory (class data sharing); it has
to be shown once which ones, so both kinds of joins are run in a process that writes the archive when it ends.

Invariant: none that anybody depends on. A JVM that finds the archive to be of other jars or of another Java starts
without it and says so. Cost: some 20 s once, about 190 MB of disk.
Source: JEP 350, dynamic archives.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import evenkeel as ek
from evenkeel.errors import ArchiveUnwritable
from evenkeel.spark.session import local_session

MOST_SECONDS = 600


def option(archive: Path) -> str:
    """What a JVM has to be told to start from the archive: for `spark.driver.extraJavaOptions`."""
    return _quoted(f"-XX:SharedArchiveFile={archive.absolute()}")


def build(archive: Path) -> None:
    """Write it. The child's output ends when its JVM has ended, which is after the archive was written."""
    archive = archive.absolute()
    part = archive.with_name(f"{archive.name}.part")  # what is there serves until there is another
    command = [sys.executable, "-m", "evenkeel.jvm_archive", str(part)]
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        child = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MOST_SECONDS
        )
        if child.returncode or not part.exists():
            raise ArchiveUnwritable.at(str(archive), child.stdout.strip()[-500:])
        part.replace(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveUnwritable.at(str(archive), str(error)) from error


def _run(archive: str) -> None:
    spark = local_session(
        "evenkeel-jvm-archive", memory="1g", spark__ui__enabled="false", spark__sql__shuffle__partitions="2",
        spark__driver__extraJavaOptions=_quoted(f"-XX:ArchiveClassesAtExit={archive}"),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows")
        rows.mkdir()
        pq.write_table(pa.table({"k": [1, 2, 2, None], "v": [0.5, 1.5, 2.5, 3.5]}), rows / "0.parquet")
        left, right = (spark.read.parquet(str(rows)) for _ in range(2))
        ek.join(left, right, "k", scheme="heavy_light", workers=2).collect()
        left, right = (spark.readStream.schema("k bigint, v double").parquet(str(rows)) for _ in range(2))
        stream = ek.stream_join(left, right, "k", units=2, state=str(Path(folder, "state")))
        query = stream.start(
            ek.sinks.delta(str(Path(folder, "out"))),
            checkpoint=str(Path(folder, "checkpoint")),
            trigger={"availableNow": True},
        )
        query.awaitTermination()
    spark.stop()


def _quoted(word: str) -> str:
    """Spark splits options at spaces, but not inside quotes."""
    return f'"{word}"' if " " in word else word


if __name__ == "__main__":
    _run(sys.argv[1])
