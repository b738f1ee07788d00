"""One Spark session for all tests of a process that need one; its seed and settings are printed once."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.quick import FORGETFUL, FROM_ARCHIVE, QUICK_JVM, SMALL_PAGES, interpreting

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JVM} {SMALL_PAGES} {FROM_ARCHIVE}"  # for this process and those it starts
SEED = 20261115

settings.register_profile(
    "evenkeel",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("evenkeel")


FIRST = "test_jvm_archive.py"
LONGEST = (
    "test_executor_loss.py", "test_connect.py", "test_two_way.py", "test_ranges.py", "test_stream_join.py",
    "test_multi_way.py", "test_docs.py", "test_plan_api.py", "test_bucketed.py", "test_bucketed_writes.py",
    "test_stream_joins.py", "test_stream_kill.py", "test_routing.py", "test_bucketed_api.py", "test_adaptive_joins.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """The archive, and meanwhile what needs no JVM; then files that take minutes, so that nobody waits at the end."""

    def place(item):
        name, needs_none = item.path.name, item.path.parent.name == "unit"
        return (name != FIRST, not needs_none, LONGEST.index(name) if name in LONGEST else len(LONGEST))

    items.sort(key=place)


def pytest_report_header() -> str:
    return f"evenkeel: seed {SEED}, hypothesis derandomized"


@pytest.fixture(scope="session")
def spark():
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("evenkeel-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"/tmp/evenkeel-tests-{os.getpid()}")
        .config("spark.log.level", "ERROR")
        .config("spark.python.daemon.module", "tests.warm_daemon")
    )
    session = builder.config(map=FORGETFUL).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture
def interpreted(spark):
    with interpreting(spark):
        yield
