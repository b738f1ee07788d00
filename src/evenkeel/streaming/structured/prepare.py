"""Two streaming DataFrames become one: every row tagged with its input and with what the joiner searches by.

    left  (0, _key, _time, _pos.., left columns, NULLs     )  \
                                                                one stream, one query, one epoch at a time
    right (1, _key, _time, _pos.., NULLs,        right ones)  /

Everything is computed by Spark's own expressions, so a value means to the stream what it means to Spark; and
everything that can be wrong with a request is found here, before a row is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from evenkeel.conditions import bound
from evenkeel.conditions.band import Band
from evenkeel.errors import StreamNotSupported, UnusableTime
from evenkeel.spark.binding import BoundJoin, about, bind, guarded, own_clauses
from evenkeel.spark.inputs import contains_type
from evenkeel.state.segment import KEY, TIME
from evenkeel.streaming.key_hash import IN_TURN, XXHASH64, in_turn_sql
from evenkeel.streaming.spec import BandSpec, Comparison, JoinSpec
from evenkeel.streaming.structured.checks import compared, differences, split
from evenkeel.streaming.windows import Window
from evenkeel.types import SIDES, How, Side, kept

TimeColumns = str | Sequence[str] | None
_NOT_KEPT = (
    T.CalendarIntervalType, T.VariantType, T.UserDefinedType, T.YearMonthIntervalType, T.DayTimeIntervalType,
    T.NullType,
)  # fmt: skip
_UNHASHED = (T.MapType, T.VariantType)
_EXACT = (T.IntegralType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BooleanType, T.FloatType, T.DoubleType)
"""Types of at most eight bytes: xxhash64 of one such value tells all values apart."""
_WHOLE = (T.IntegralType, T.DateType)
_VERIFIED = (*_EXACT, T.StringType, T.BinaryType, T.DecimalType)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)


@dataclass(frozen=True, eq=False)
class PreparedJoin:
    bound: BoundJoin
    spec: JoinSpec
    both: DataFrame
    """The stream of tagged rows."""
    stored: dict[Side, dict[str, str]]
    """The name in the state of each bound column."""
    hashed: dict[Side, list[str]]
    """The columns that the content hash of a row is made of."""
    engine: list[str]
    times: dict[Side, Column]
    """Event time in microseconds, over the bound columns; empty without a window."""

    @property
    def arrow(self) -> pa.Schema:
        """The tagged rows' columns."""
        return to_arrow_schema(T.StructType(self.both.schema.fields), timezone="UTC")

    @property
    def schemas(self) -> dict[Side, pa.Schema]:
        """What a segment of each input holds."""
        out: dict[Side, pa.Schema] = {}
        arrow = self.arrow
        for side in SIDES:
            out[side] = pa.schema([arrow.field(c) for c in (*self.engine, *self.stored[side].values())])
        return out

    @property
    def result(self) -> T.StructType:
        """What the units emit: the inputs' columns under their bound names."""
        sides: tuple[Side, ...] = SIDES if self.spec.pairs else ("left",)
        fields = []
        for side in sides:
            for name in self.bound.columns(side):
                fields.append(T.StructField(name, self.both.schema[self.stored[side][name]].dataType))
        return T.StructType(fields)

    @property
    def few_keys(self) -> bool:
        """Whether the key has a handful of values at most."""
        kinds = self.bound.key_types
        return bool(kinds) and len(kinds) < 3 and all(isinstance(k, T.BooleanType) for k in kinds)

    def checked(self, joined: DataFrame) -> DataFrame:
        """The user's own condition on what the units emit."""
        residual = self.bound.condition.residual_sql
        return joined.filter(residual) if residual and not self.spec.preserved else joined

    def finish(self, joined: DataFrame) -> DataFrame:
        """The results as the user named them."""
        return self.bound.project(self.checked(joined))


def prepare(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | None,
    how: How,
    window: Window,
    lateness: int,
    time: TimeColumns,
    suffixes: tuple[str, str] = ("", "_r"),
) -> PreparedJoin:
    join = bind(left, right, on, how, suffixes)
    if how not in ("inner", "cross") and window.kind == "none":
        raise StreamNotSupported.needs_window(how)
    equality = bool(join.condition.equi) or window.kind == "tumbling"
    own: dict[Side, Column | None] = dict.fromkeys(SIDES)
    if window.kind != "none" and (equality or join.condition.spans):
        # Rows that can match nothing still tell the time; without a key or a place they are not held.
        own = {s: own_clauses(join.condition, s) for s in SIDES}
    else:
        join = guarded(join)
    times, clock = micros(join, window, time)
    keys = [[e.sql(s).strip("`") for e in join.condition.equi] for s in SIDES]
    null_safe = [e.null_safe for e in join.condition.equi]
    kinds = list(join.key_types)
    for e, kind in zip(join.condition.equi, kinds, strict=True):
        if not isinstance(kind, _VERIFIED):
            raise StreamNotSupported.key_type(e.text, kind.simpleString())
    extra: dict[Side, dict[str, Column]] = {s: {} for s in SIDES}
    if window.kind == "tumbling":
        for side, names in zip(SIDES, keys, strict=True):
            extra[side]["_w"] = F.floor(times[side] / F.lit(window.size)).cast("bigint")
            names.append("_w")
        null_safe.append(False)
        kinds.append(T.LongType())
    stored = {s: _stored_names(join, s) for s in SIDES}
    verify: list[Comparison] = []
    alone = len(kinds) == 1 and not null_safe[0]
    turn = alone and bool(join.condition.equi) and isinstance(kinds[0], _WHOLE)
    if equality and not (alone and isinstance(kinds[0], _EXACT)):
        for i, safe in enumerate(null_safe):
            for side, names in zip(SIDES, keys, strict=True):
                extra[side][f"_k{i}"] = extra[side].get(names[i], F.col(names[i]))
            verify.append(Comparison(f"_k{i}", "<=>" if safe else "=", f"_k{i}"))
    checks = _checks(join, extra, own) if how not in ("inner", "cross") else []
    for side in SIDES:
        hashed_key = [extra[side].get(n, F.col(n)) for n in keys[SIDES.index(side)]]
        if equality:
            missing = [k.isNull() for k, safe in zip(hashed_key, null_safe, strict=True) if not safe]
            key = F.expr(in_turn_sql(_whole(keys[SIDES.index(side)][0], kinds[0]))) if turn else F.xxhash64(*hashed_key)
            for m in missing:
                key = F.when(~m, key)
            extra[side][KEY] = _masked(own[side], key)
        if window.kind != "none":
            extra[side][TIME] = times[side]
        for i, span in enumerate(join.condition.spans):
            extra[side][f"_pos{i}"] = _masked(own[side], F.expr(span.sql(side)).cast("double"))
        extra[side].pop("_w", None)
    bands = tuple(BandSpec(f"_pos{i}", s.lo, s.hi, s.slack) for i, s in enumerate(join.condition.spans))
    spec = JoinSpec(
        join.condition.text,
        how,
        {s: tuple(stored[s].values()) for s in SIDES},
        {s: tuple(join.side(s).schema[c].dataType.simpleString() for c in stored[s]) for s in SIDES},
        equality,
        tuple(verify),
        bands,
        tuple(checks),
        window,
        lateness if window.kind != "none" else 0,
        window.kind != "none",
        hashing=IN_TURN if turn else XXHASH64,
        clock=clock,
    )
    engine = list(extra["left"])
    both = _united(join, stored, extra, engine)
    hashed = {
        s: [n for c, n in stored[s].items() if not contains_type(join.side(s).schema[c].dataType, _UNHASHED)]
        for s in SIDES
    }
    return PreparedJoin(join, spec, both, stored, hashed, engine, times)


def _whole(column: str, kind: T.DataType) -> str:
    """The key as a bigint: a date as its day."""
    value = f"unix_date(`{column}`)" if isinstance(kind, T.DateType) else f"`{column}`"
    return f"cast({value} AS bigint)"


def _united(
    join: BoundJoin, stored: dict[Side, dict[str, str]], extra: dict[Side, dict[str, Column]], engine: list[str]
) -> DataFrame:
    parts = []
    for side in SIDES:
        columns = [F.expr(f"`{c}` AS `{n}`") for c, n in stored[side].items()]
        tag = F.expr(f"cast({SIDES.index(side)} AS tinyint) AS _side")
        parts.append(join.side(side).select(tag, *(extra[side][c].alias(c) for c in engine), *columns))
    return parts[0].unionByName(parts[1], allowMissingColumns=True)


def micros(join: BoundJoin, window: Window, time: TimeColumns) -> tuple[dict[Side, Column], str | None]:
    """Event time of each input in microseconds, and where it comes from; nothing is asked for without a window."""
    if window.kind == "none":
        return {}, None
    if time is None:
        raise UnusableTime.missing()
    names = (time, time) if isinstance(time, str) else tuple(time)
    if len(names) != 2:
        raise UnusableTime.missing()
    found: dict[Side, tuple[str, T.DataType]] = {}
    for side, name in zip(SIDES, names, strict=True):
        column = bound(side, join.names.index(side, name))
        kind = join.side(side).schema[column].dataType
        if not isinstance(kind, _TIMES):
            raise UnusableTime.wrong_type(name, side, kind.simpleString())
        found[side] = column, kind
    kinds = [kind for _, kind in found.values()]
    clock = ", ".join(f"{side[0]}.{name}" for side, name in zip(SIDES, names, strict=True))
    local = not any(isinstance(k, T.TimestampType) for k in kinds)
    if not local and not all(isinstance(k, T.TimestampType) for k in kinds):
        clock += f" in {join.left.sparkSession.conf.get('spark.sql.session.timeZone')}"
    out: dict[Side, Column] = {}
    for side, (column, _) in found.items():
        if local:  # wall clocks: every day has 24 hours, whatever the zone
            wall = f"cast(`{column}` AS timestamp_ntz)"
            out[side] = F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01', {wall})")
        else:
            out[side] = F.expr(f"unix_micros(cast(`{column}` AS timestamp))")
    return out, clock


def _stored_names(join: BoundJoin, side: Side) -> dict[str, str]:
    """A name in the state for each column: as the user has it, as far as every Delta reader takes it."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for i, name in enumerate(join.names.of(side)):
        column = bound(side, i)
        kind = join.side(side).schema[column].dataType
        if contains_type(kind, _NOT_KEPT):
            raise StreamNotSupported.column_type(name, side, kind.simpleString())
        plain = f"{side[0]}_" + re.sub(r"[^0-9A-Za-z_]", "_", name)
        unique, n = plain, i
        while unique.lower() in taken:
            unique, n = f"{plain}_{n}", n + 1
        taken.add(unique.lower())
        out[column] = unique
    return out


def _masked(own: Column | None, value: Column) -> Column:
    return value if own is None else F.when(own, value)


def _checks(
    join: BoundJoin, extra: dict[Side, dict[str, Column]], own: dict[Side, Column | None]
) -> list[Comparison]:
    """The rest of the condition as comparisons that a unit can make: it has to know which rows matched.

    What is about one side is not among them, where rows that fail it have no key or are not read.
    """
    checks: list[Comparison] = []
    both = join.left.crossJoin(join.right)
    for theta in join.condition.residual:
        side = about(theta)
        if side is not None and (own[side] is not None or side not in kept(join.how)):
            continue
        cuts = split(theta.sql)
        if cuts is None:
            bands = differences(theta.text, join.names)
            cuts = [cut for band in bands for cut in compared(band, _wide(join, band, theta.text))]
        if not cuts:
            raise StreamNotSupported.outer_condition(join.how, theta.text)
        for left, op, right in cuts:
            kind = both.select(F.expr(f"coalesce({left}, {right})").alias("c")).schema["c"].dataType
            if not isinstance(kind, _VERIFIED) or (isinstance(kind, T.StringType) and kind.collation != "UTF8_BINARY"):
                raise StreamNotSupported.outer_condition(join.how, theta.text)
            name = f"_c{len(checks)}"
            extra["left"][name], extra["right"][name] = (F.expr(sql).cast(kind) for sql in (left, right))
            checks.append(Comparison(name, op, name))
    return checks


def _wide(join: BoundJoin, band: Band, text: str) -> str:
    """A type in which sums of the band's values are exact; '' for points in time. Rounded numbers have none."""
    kinds = [join.side(s).select(F.expr(band.sql(s)).alias("c")).schema["c"].dataType for s in SIDES]
    if all(isinstance(k, T.IntegralType) for k in kinds):
        return "decimal(20, 0)"
    if all(isinstance(k, _TIMES) for k in kinds):
        return ""
    raise StreamNotSupported.outer_condition(join.how, text)
