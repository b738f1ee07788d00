"""Spark as small queries want it: they spend their time compiling, not running.

The widest tests run without generated code, and every JVM of the tests stops at the first of its two compilers, which
leaves both cores to the tests: a fifth of their time.
"""

from __future__ import annotations

from contextlib import contextmanager

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def interpreting(spark):
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in INTERPRETED:
            spark.conf.unset(key)
