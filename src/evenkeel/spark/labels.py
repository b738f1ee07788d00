"""Keys as text, for people."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

LABEL = 40
"""Characters of a key that are shown."""


def text_sql(sql: str, kind: T.DataType) -> str:
    """A value as text; NULL too, which may be a key like any other."""
    whole = f"hex({sql})" if isinstance(kind, T.BinaryType) else f"cast({sql} as string)"
    return f"coalesce(left({whole}, {LABEL}), 'NULL')"


def readable(value: pa.Scalar) -> str | None:
    """The text, or None where there is none that Python can show: Spark does not check its UTF-8."""
    try:
        return None if value.as_py() is None else str(value.as_py())
    except ValueError:
        return None
