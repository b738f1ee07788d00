"""A bounded sample of an input's rows, at a rate from Spark's estimate of its size, which may be wrong.

Bound: of at most a million rows, the task with number p sends a million / (p + 1), so 200 tasks send 6 million and a
thousand 7.5 million, however many rows there are; a sample is expected to have `wanted` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from evenkeel.stats import SEEN_ENOUGH

MOST_ROWS = 1_000_000
WHOLE = 2
"""An input of this many times the rows that are wanted is not worth sampling."""
SEED = 20190415
_TASK_BITS = 33
_ROW = f"(monotonically_increasing_id() & {2**_TASK_BITS - 1}L)"
"""The number of a row in its task."""
_LAST = f"({{most}}L div (shiftright(monotonically_increasing_id(), {_TASK_BITS}) + 1L))"
"""The last row that a task may send."""


@dataclass(frozen=True, eq=False)
class Sample:
    rows: pa.Table
    rate: float
    cut: bool
    """Whether some task had more rows than it may send."""


def sample(df: DataFrame, columns: list[str], expected: float | None, wanted: int) -> Sample | None:
    """About `wanted` rows, or all; None where Spark's estimate is of no use.

    A sample that comes out far too small (of a filter: Spark does not know how few rows it leaves) or far too large
    (of a table that is stored in few bytes) is drawn once more, at the rate that the first one teaches.
    """
    if expected is None:
        return None
    rate = sampling_rate(expected, wanted)
    drawn = draw(df, columns, rate, MOST_ROWS)
    found = len(drawn.rows)
    few = rate < 1.0 and found < wanted / 4
    if few or drawn.cut:
        if found < (wanted if drawn.cut else SEEN_ENOUGH):
            return None
        drawn = draw(df, columns, min(1.0, rate * wanted / found), MOST_ROWS)
    return None if drawn.cut else drawn


def sampling_rate(rows: float, wanted: int) -> float:
    return 1.0 if rows <= WHOLE * wanted else wanted / rows


def draw(df: DataFrame, columns: list[str], rate: float, most: int | None = None) -> Sample:
    """Every row with this probability, at most so many of a task; the same again if the input repeats its order."""
    if rate < 1.0:
        df = df.sample(fraction=rate, seed=SEED)
    if most is None:
        return Sample(df.selectExpr(*columns).toArrow(), rate, False)
    last = _LAST.format(most=most)
    # Rows that are left in a task are numbered as they were: it keeps its first ones.
    rows = df.filter(f"{_ROW} <= {last}").selectExpr(*columns, f"{_ROW} = {last} AS last").toArrow()
    return Sample(rows.drop_columns("last"), rate, bool(pc.any(rows["last"], min_count=0).as_py()))
