"""A bounded sample of an input's rows, at a rate from Spark's estimate of its size, which may be wrong.

Bound: a task sends MOST_ROWS rows at the most, and a sample is expected to have `wanted` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from evenkeel.stats import SEEN_ENOUGH

MOST_ROWS = 1_000_000
WHOLE = 2
"""An input of this many times the rows that are wanted is not worth sampling."""
SEED = 20190415
_ROW_NUMBER = f"(monotonically_increasing_id() & {2**33 - 1}L)"
"""Of a row in its task."""


@dataclass(frozen=True, eq=False)
class Sample:
    rows: pa.Table
    rate: float


def sample(df: DataFrame, columns: list[str], expected: float | None, wanted: int) -> Sample | None:
    """About `wanted` rows, or all; None where Spark's estimate is of no use.

    A sample that comes out far too small (of a filter: Spark does not know how few rows it leaves) or far too large
    (of a table that is stored in few bytes) is drawn once more, at the rate that the first one teaches.
    """
    if expected is None:
        return None
    rate = 1.0 if expected <= WHOLE * wanted else wanted / expected
    rows = draw(df, columns, rate)
    if len(rows) >= MOST_ROWS or (rate < 1.0 and len(rows) < wanted / 4):
        if len(rows) < SEEN_ENOUGH:
            return None
        rate = min(1.0, rate * wanted / len(rows))
        rows = draw(df, columns, rate)
    return Sample(rows, rate) if len(rows) < MOST_ROWS else None


def draw(df: DataFrame, columns: list[str], rate: float) -> pa.Table:
    """Every row with this probability, the same ones when asked again."""
    if rate < 1.0:
        df = df.sample(fraction=rate, seed=SEED)
    return df.filter(f"{_ROW_NUMBER} < {MOST_ROWS}").selectExpr(*columns).toArrow()
