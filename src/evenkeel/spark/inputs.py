"""What Spark knows of an input without running it: its size, and whether a retried task repeats its row order.

Both are read from the plan that `DataFrame.explain` prints, the one description that Spark and Spark Connect
share. Whatever is not understood there counts as unknown, which costs time at worst.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

_STDOUT = threading.Lock()
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E[+-]?\d+)?) ([KMGTPE]?i?B)")
_JOIN = re.compile(r"Join (?!LeftSemi|LeftAnti)")
_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}
_OPERATOR = re.compile(r"^[\s:+\-|*]*(?:\(\d+\)\s*)?([A-Za-z]+(?: [a-z]+)?)")
_SCAN = re.compile(
    r"FileScan parquet [^\[]*\[(.*?)\] .*DataFilters: \[\], Format: Parquet, "
    r"Location: InMemoryFileIndex\(.*PartitionFilters: \[\], "
)
"""A scan of listed Parquet files that keeps every row; tables whose files are found another way may leave some out."""
_IN_ORDER = {
    "Coalesce", "ColumnarToRow", "Expand", "FileScan", "Filter", "Generate", "InMemoryRelation",
    "InMemoryTableScan", "InputAdapter", "LocalTableScan", "Project", "Range", "Sample", "Union", "WholeStageCodegen",
}  # fmt: skip
"""Operators that hand on rows in the order they read them, and sources that always read in one order."""

_WIDTHS: tuple[tuple[type[T.DataType], float], ...] = (
    (T.BooleanType, 1), (T.ByteType, 1), (T.ShortType, 2), (T.IntegerType, 4), (T.FloatType, 4), (T.DateType, 4),
    (T.StringType, 20), (T.BinaryType, 100), (T.DecimalType, 16),
)  # fmt: skip


def explain_text(df: DataFrame) -> str:
    """`df.explain(mode="cost")` as text. It plans the query and starts no job."""
    with _STDOUT, contextlib.redirect_stdout(io.StringIO()) as out:
        df.explain(mode="cost")
    return out.getvalue()


def size_in_bytes(explained: str) -> float | None:
    """Spark's estimate of the size, or None where it has none."""
    found = _SIZE.search(explained)
    if found is None:
        return None
    size = float(found[1]) * 1024.0 ** _UNITS[found[2]]
    return size if size < 2.0**60 else None  # Spark says 8 EiB for "no idea"


def row_estimate(explained: str, row_bytes: float) -> float | None:
    """About how many rows there are by Spark's estimate of the size; None where that says nothing.

    Of a join it does not: Spark takes the product of its inputs' sizes.
    """
    size = size_in_bytes(explained)
    return None if size is None or _has_join(explained) else size / row_bytes


def _has_join(explained: str) -> bool:
    """Whether the size comes from a join: not one below a cached table, nor one that only filters."""
    cached: int | None = None
    for line in explained.partition("== Physical Plan ==")[0].splitlines():
        operator = line.lstrip(" :+-|")
        depth = len(line) - len(operator)
        if cached is not None and depth > cached:
            continue
        cached = depth if operator.startswith("InMemoryRelation") else None
        if _JOIN.match(operator):
            return True
    return False


def keeps_order(explained: str) -> bool:
    """Whether every operator of the physical plan is known to repeat its row order when run again."""
    _, _, physical = explained.partition("== Physical Plan ==")
    operators = [_OPERATOR.match(line) for line in physical.splitlines() if line.strip()]
    return bool(operators) and all(op is not None and op[1].split(" ")[0] in _IN_ORDER for op in operators)


def parquet_columns(explained: str, names: list[str]) -> list[str] | None:
    """What these columns are called in Parquet files; None where the input is more than those files as they are."""
    lines = [line for line in explained.partition("== Physical Plan ==")[2].splitlines() if line.strip()]
    operators = [found[1] for line in lines if (found := _OPERATOR.match(line))]
    scan = _SCAN.search(lines[-1]) if lines else None
    if scan is None or [o for o in operators if o != "ColumnarToRow"] != ["Project", "FileScan parquet"]:
        return None
    scanned, columns = set(scan[1].split(",")), []
    for name in names:
        found = re.search(rf"[\[ ]((\w+)#\d+L?) AS {re.escape(name)}#", lines[0])
        if found is None or found[1] not in scanned:
            return None
        columns.append(found[2])
    return columns


def row_bytes(schema: T.StructType) -> float:
    """About how many bytes a row takes, by its types."""
    return 8.0 + sum(next((w for t, w in _WIDTHS if isinstance(f.dataType, t)), 8.0) for f in schema)


def contains_type(kind: T.DataType, unwanted: tuple[type[T.DataType], ...]) -> bool:
    if isinstance(kind, unwanted):
        return True
    if isinstance(kind, T.StructType):
        return any(contains_type(f.dataType, unwanted) for f in kind)
    if isinstance(kind, T.ArrayType):
        return contains_type(kind.elementType, unwanted)
    if isinstance(kind, T.MapType):
        return contains_type(kind.keyType, unwanted) or contains_type(kind.valueType, unwanted)
    return False


def quoted(name: str) -> str:
    """A column's name as SQL, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def cores(spark: SparkSession) -> int | None:
    """How many tasks the session runs at once, where it tells."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # a Connect session has no context and says so in several ways
        return None


def case_matters(spark: SparkSession) -> bool:
    """Whether Spark tells `a` from `A`."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
