"""Two results are the same when they hold the same rows equally often, in whatever order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

PLAIN = (int, str, type(None), bool, bytes)
"""Types whose values are counted as they are, which is nearly all of them."""


def multiset(rows: Any) -> Counter[tuple[Any, ...]]:
    """Rows of a Spark DataFrame, an Arrow table or an iterable of dicts or tuples, counted."""
    if hasattr(rows, "toArrow"):
        rows = rows.toArrow()
    if isinstance(rows, pa.Table):
        rows = zip(*(c.to_pylist() for c in rows.columns), strict=True) if rows.num_columns else []
    return Counter(tuple(v if type(v) in PLAIN else _plain(v) for v in _values(row)) for row in rows)


def assert_same_rows(actual: Any, expected: Any) -> None:
    """Fail with the first rows that one result has more often than the other."""
    got, want = multiset(actual), multiset(expected)
    if got == want:
        return
    extra, missing = got - want, want - got
    lines = [f"{sum(got.values())} rows, expected {sum(want.values())}"]
    for what, rows in (("too often", extra), ("missing", missing)):
        lines += [f"  {what}: {row} ({count}x)" for row, count in list(rows.items())[:5]]
    raise AssertionError("\n".join(lines))


def _values(row: Any) -> Iterable[Any]:
    return row if type(row) is tuple or not isinstance(row, Mapping) else row.values()


def _plain(value: Any) -> Any:
    """NaN is itself, -0.0 is 0.0, and containers can be counted."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    if isinstance(value, Mapping):
        return tuple((k, _plain(v)) for k, v in value.items())
    return bytes(value) if isinstance(value, bytearray) else value
