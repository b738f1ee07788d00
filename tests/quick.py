"""Spark as small queries want it: they spend their time compiling, not running.

The widest tests run without generated code, and every JVM of the tests stops at the first of its two compilers, which
leaves both cores to the tests: a fifth of their time. Stopped there Java keeps 48 MB of compiled code and soon compiles
again what it dropped, and a sort takes a page of 64 MB for forty rows, so old space is collected every second: more
room for code, small pages and a larger young generation are a quarter of what is left.

Some ten JVMs start in all, and each spends four seconds on reading Spark's classes. The first test writes an archive
of them (`evenkeel jvm-archive`), and those that start after it begin from there.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn400m"
SMALL_PAGES = "-Dspark.buffer.pageSize=1m"
ARCHIVE = Path(__file__).parent.parent / ".pytest_cache" / "spark.jsa"
FROM_ARCHIVE = f'"-XX:SharedArchiveFile={ARCHIVE}" -Xlog:disable'
"""Where there is none, or one of another Java, a JVM starts without it; it need not say so."""
FORGETFUL = {
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.showConsoleProgress": "false",
}
"""Without a UI nobody looks at what has run, and Spark keeps the plans of a thousand queries for it."""


@contextmanager
def interpreting(spark):
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in INTERPRETED:
            spark.conf.unset(key)
