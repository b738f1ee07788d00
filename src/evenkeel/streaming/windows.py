"""Windows over event time: which pairs are near enough, which rows are late, which segments are of no use any more.

    full history   every pair                                    nothing expires
    sliding        |l.time - r.time| <= size, inclusive          a row at t is of use while watermark <= t + size
    tumbling       both in [k * size, (k + 1) * size)            ... while watermark < the end of its window

The watermark is the smaller of the inputs' newest times, less the lateness allowed. It is taken after an epoch and
judges the next one: a row older than it is late. Theorem 1 of BiStream (section 3.3), with the network's delay
replaced by lateness in event time: a partner that is not late cannot reach a row that has expired.
All times are microseconds since 1970.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evenkeel.errors import InvalidDuration

WindowKind = Literal["none", "sliding", "tumbling"]
_UNITS = {
    "microsecond": 1, "us": 1, "millisecond": 1_000, "ms": 1_000, "second": 1_000_000, "sec": 1_000_000,
    "s": 1_000_000, "minute": 60_000_000, "min": 60_000_000, "hour": 3_600_000_000, "h": 3_600_000_000,
    "day": 86_400_000_000, "d": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_TERM = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")


@dataclass(frozen=True, slots=True)
class Window:
    kind: WindowKind = "none"
    size: int = 0

    def useless_before(self, watermark: int | None) -> int | None:
        """Rows older than this time can have no partner that is yet to come."""
        if watermark is None or self.kind == "none":
            return None
        if self.kind == "sliding":
            return watermark - self.size
        return watermark - watermark % self.size

    def due_before(self, watermark: int | None) -> int | None:
        """Rows older than this time have seen all the partners they can have."""
        return self.useless_before(watermark)

    def kept_after_due(self) -> int:
        """How much longer partners are kept so that a row can be probed once more when it is due."""
        return 2 * self.size if self.kind == "sliding" else 0

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "size": self.size}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Window:
        return cls(doc["kind"], int(doc["size"]))


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of a fixed size, one after the other: pass it as `within`."""

    size: int


def tumbling(size: str | dt.timedelta) -> Tumbling:
    """Pairs whose rows fall into the same window of this size, counted from 1970."""
    return Tumbling(microseconds("within", size))


def window_of(within: str | dt.timedelta | Tumbling | None) -> Window:
    if within is None:
        return Window()
    if isinstance(within, Tumbling):
        return Window("tumbling", within.size)
    return Window("sliding", microseconds("within", within, zero=True))


def microseconds(what: str, value: object, zero: bool = False) -> int:
    """'1 hour 30 minutes' or a timedelta, in microseconds."""
    if isinstance(value, dt.timedelta):
        total: float = value // dt.timedelta(microseconds=1)
    elif isinstance(value, str):
        text = value.strip().lower().removeprefix("interval ").strip()
        if not text or _TERM.sub("", text).strip():
            raise InvalidDuration.of(what, value)
        total = 0
        for number, unit in _TERM.findall(text):
            factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
            if factor is None:
                raise InvalidDuration.of(what, value)
            total += float(number) * factor
    else:
        raise InvalidDuration.of(what, value)
    if total < 0 or (total == 0 and not zero):
        raise InvalidDuration.of(what, value)
    return round(total)


def watermark(newest: Mapping[str, int | None], lateness: int) -> int | None:
    """None until every input has been heard of."""
    times = [t for t in newest.values() if t is not None]
    return min(times) - lateness if times and len(times) == len(newest) else None
