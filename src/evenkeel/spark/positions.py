"""Bands in numbers: either side becomes a double, and the bounds become a range of their difference.

A position rises with the value it stands for and may be rounded; the range is widened by whatever rounding, leap
days or daylight saving could make of it. So a pair that matches is always within the range. A pair within the
range need not match: the user's own condition is checked where pairs meet.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from evenkeel.conditions import Band, Bound, Span
from evenkeel.errors import UnusableBand
from evenkeel.types import SIDES, Side

DAY = 86_400e6
MONTH = 30.436875 * DAY
"""The mean month; any run of months is within five days of as many of these (4.4 over the 400 years of a cycle)."""
MONTH_SLACK = 5 * DAY
ZONE_SLACK = 25 * 3600e6
"""A day in a time zone may be this much longer or shorter than 24 hours, at the very most."""
DECIMAL_SLACK = 1e-6
"""Decimal arithmetic keeps at least six digits behind the point."""
EXACT_SLACK = 2.0**-50
FLOAT_SLACK = 2.0**-20
_MICROSECOND = dt.timedelta(microseconds=1)
_WHOLE = re.compile(r"-?\d{1,9}")
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_INTEGRAL = (T.IntegralType, *_TIMES)
_FIXED_ZONES = ("UTC", "GMT", "Z", "ETC/UTC", "ETC/GMT", "UCT", "ZULU")


def spans_of(frames: dict[Side, DataFrame], bands: Sequence[Band]) -> tuple[Span, ...]:
    """The bands over numbers and points in time as spans, narrowest first."""
    spans: list[Span] = []
    for band in bands:
        kinds = {s: frames[s].selectExpr(f"{band.sql(s)} AS k").schema["k"].dataType for s in SIDES}
        common = _common(frames, band, kinds)
        if common is None:
            continue
        values = _constants(frames["left"].sparkSession, band)
        if isinstance(common, T.DateType) and any(not _whole_days(v) for v in values.values()):
            common = T.TimestampType()
        span = _span(frames["left"].sparkSession, band, kinds, common, values)
        if span is not None:
            spans.append(span)
    return tuple(sorted(spans, key=lambda s: (not s.bounded, s.width)))


def _common(frames: dict[Side, DataFrame], band: Band, kinds: dict[Side, T.DataType]) -> T.DataType | None:
    """What both sides are compared as; None where that is neither a number nor a point in time."""
    left, right = kinds["left"], kinds["right"]
    if isinstance(left, T.NumericType) and isinstance(right, T.NumericType):
        return T.DoubleType()
    if isinstance(left, _TIMES) and isinstance(right, _TIMES):
        if left == right:
            return left
        both = frames["left"].crossJoin(frames["right"])
        return both.select(F.expr(f"coalesce({band.left}, {band.right})").alias("k")).schema["k"].dataType
    return None


def _span(
    spark: SparkSession, band: Band, kinds: dict[Side, T.DataType], common: T.DataType, values: dict[str, _Constant]
) -> Span | None:
    if any(isinstance(v.kind, T.CalendarIntervalType) for v in values.values()):
        raise UnusableBand.mixed_interval(band.text)
    numbers = [*kinds.values(), *(v.kind for v in values.values())]
    floating = any(isinstance(k, (T.FloatType, T.DoubleType)) for k in numbers)
    if any(isinstance(v.kind, T.StringType) for v in values.values()):
        return None
    if band.subtracts and floating and band.upper is None:
        return None  # NaN is above every number: a difference with NaN matches here, wherever the other value is
    wall = any(isinstance(k, T.TimestampNTZType) for k in kinds.values())
    lower = _range(band.lower, common, values, band, spark, wall)
    upper = _range(band.upper, common, values, band, spark, wall)
    lo, hi = (-math.inf if lower is None else lower[0]), (math.inf if upper is None else upper[1])
    if lower is not None and upper is not None:
        crossed = lower[1] > upper[0] and lower[0] > upper[1]
        empty = lower == upper and (_strict(band.lower) or _strict(band.upper)) and lower[0] == lower[1]
        if crossed or empty:
            raise UnusableBand.crossing(band.text, lo, hi)
    integral = all(isinstance(k, _INTEGRAL) for k in kinds.values()) and all(v.integral for v in values.values())
    if integral and _strict(band.lower):
        lo = math.floor(lo) + 1.0
    if integral and _strict(band.upper):
        hi = math.ceil(hi) - 1.0
    if any(isinstance(k, T.DecimalType) for k in kinds.values()):
        lo, hi = lo - DECIMAL_SLACK, hi + DECIMAL_SLACK
    if any(isinstance(k, T.FloatType) for k in numbers):  # a difference of floats is off by a part of itself
        lo, hi = lo - FLOAT_SLACK * abs(lo), hi + FLOAT_SLACK * abs(hi)
    summed = not band.subtracts and any(isinstance(v.kind, T.FloatType) for v in values.values())
    # Without ANSI, Spark compares a whole number with a float as floats.
    rounded = len([k for k in kinds.values() if isinstance(k, T.FloatType)]) == 1
    slack = FLOAT_SLACK if summed or rounded else EXACT_SLACK
    left, right = (_position_sql(band.sql(s), kinds[s], common, band.subtracts) for s in SIDES)
    return Span(left, right, lo, hi, slack, band.text)


def _strict(bound: Bound | None) -> bool:
    return bound is not None and bound.strict


class _Constant:
    """A constant of a bound: its type, and its value as Python has it."""

    def __init__(self, kind: T.DataType, value: object) -> None:
        self.kind = kind
        self.value = value

    @property
    def integral(self) -> bool:
        return isinstance(self.kind, (T.IntegralType, T.DayTimeIntervalType))


def _whole_days(constant: _Constant) -> bool:
    kind = constant.kind
    if isinstance(kind, T.DayTimeIntervalType):
        return bool(kind.endField == T.DayTimeIntervalType.DAY)
    return True


def _constants(spark: SparkSession, band: Band) -> dict[str, _Constant]:
    """Spark evaluates the constants of a bound; rows given as VALUES need no job."""
    texts = sorted({sql for b in (band.lower, band.upper) if b is not None for _, sql in b.terms})
    if all(_WHOLE.fullmatch(t) for t in texts):
        return {t: _Constant(T.IntegerType(), int(t)) for t in texts}
    table = spark.sql(f"SELECT * FROM VALUES ({', '.join(texts)})")
    kinds = [f.dataType for f in table.schema]
    months = [
        F.expr(f"cast(cast({c} AS INTERVAL MONTH) AS INT)") if isinstance(k, T.YearMonthIntervalType) else F.col(c)
        for c, k in zip(table.columns, kinds, strict=True)
    ]
    if any(isinstance(k, T.CalendarIntervalType) for k in kinds):
        raise UnusableBand.mixed_interval(band.text)
    row = table.select(*months).collect()[0]
    return {t: _Constant(k, v) for t, k, v in zip(texts, kinds, row, strict=True)}


def _range(
    bound: Bound | None, common: T.DataType, values: dict[str, _Constant], band: Band, spark: SparkSession, wall: bool
) -> tuple[float, float] | None:
    """Between which numbers the bound lies, in the unit of the positions; `wall`: added to a wall clock."""
    if bound is None:
        return None
    low = high = 0.0
    for sign, text in bound.terms:
        a, b = _amount(values[text], common, band, spark, wall)
        low, high = low + min(sign * a, sign * b), high + max(sign * a, sign * b)
    return low, high


def _amount(
    constant: _Constant, common: T.DataType, band: Band, spark: SparkSession, wall: bool
) -> tuple[float, float]:
    value, kind = constant.value, constant.kind
    if value is None:
        raise UnusableBand.null_bound(band.text)
    unit = DAY if isinstance(common, T.DateType) else 1.0
    if isinstance(kind, T.DayTimeIntervalType):
        micros = value / _MICROSECOND  # type: ignore[operator]
        slack = ZONE_SLACK if _zoned(common, band, spark) and (wall or abs(micros) >= DAY) else 0.0
        return (micros - slack) / unit, (micros + slack) / unit
    if isinstance(kind, T.YearMonthIntervalType):
        micros = float(value) * MONTH  # type: ignore[arg-type]
        slack = MONTH_SLACK + (ZONE_SLACK if isinstance(common, T.TimestampType) else 0.0)
        return (micros - slack) / unit, (micros + slack) / unit
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        raise UnusableBand.null_bound(band.text)
    if isinstance(common, (T.TimestampType, T.TimestampNTZType)):  # a number added to a date is one of days
        slack = ZONE_SLACK if _zoned(common, band, spark) else 0.0
        return number * DAY - slack, number * DAY + slack
    return number, number


def _zoned(common: T.DataType, band: Band, spark: SparkSession) -> bool:
    """Whether adding days, or hours to a wall clock, may meet a change of the clock."""
    return isinstance(common, T.TimestampType) and not band.subtracts and not _fixed_zone(spark)


def _fixed_zone(spark: SparkSession) -> bool:
    zone = str(spark.conf.get("spark.sql.session.timeZone", "UTC")).upper()
    return zone in _FIXED_ZONES or zone[:1] in "+-" or zone[:4] in ("UTC+", "UTC-", "GMT+", "GMT-")


def _position_sql(sql: str, kind: T.DataType, common: T.DataType, subtracts: bool) -> str:
    if isinstance(common, T.DateType):
        return f"cast(unix_date({sql}) AS double)"
    if isinstance(common, T.TimestampType) and not subtracts:
        return f"cast(unix_micros(cast({sql} AS timestamp)) AS double)"
    if isinstance(common, (T.TimestampType, T.TimestampNTZType)):
        # Spark subtracts points in time by the wall clock of the session's zone.
        local = f"cast(cast({sql} AS {common.simpleString()}) AS timestamp_ntz)"
        return f"cast(timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01', {local}) AS double)"
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return f"CASE WHEN isnan({sql}) THEN double('Infinity') ELSE cast({sql} AS double) END"
    return f"cast({sql} AS double)"
