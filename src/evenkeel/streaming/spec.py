"""What a stream join is, in a form that a unit needs and that the state remembers.

Rows reach a unit prepared: beside the user's columns they carry what the joiner searches by.

    _key      hash of the equality keys (`key_hash.py`); NULL where the row can match nothing
    _time     event time in microseconds
    _row      hash of content and epoch, where a stored row is to be placed again
    _pos0 ..  positions of the bands: doubles that rise with the value they stand for
    _k0 ..    values of the equality keys, where they are not columns already
    _c0 ..    values that a row is compared by with `=`, `<`, ... when the joiner itself must decide

A specification turns into JSON; a state written under another one is refused, part by part (`check_same`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from evenkeel.errors import StateMismatch
from evenkeel.state.segment import KEY, TIME
from evenkeel.streaming.key_hash import XXHASH64
from evenkeel.streaming.windows import Window
from evenkeel.types import How

Operator = Literal["=", "<=>", "<", "<=", ">", ">=", "<>"]
INPUTS = ("left", "right")


@dataclass(frozen=True, slots=True)
class BandSpec:
    """`lo <= left - right <= hi` over a column of both inputs, less what rounding may have done."""

    column: str
    lo: float
    hi: float
    slack: float = 0.0

    def reach(self, values: Any, probing: str) -> tuple[Any, Any]:
        """Between which values of the other input a probing row's partners lie, ends included."""
        low, high = (self.lo, self.hi) if probing == "right" else (-self.hi, -self.lo)
        if values.dtype.kind == "i":
            return values + int(low), values + int(high)
        size = np.minimum(np.abs(values), 1e300) * self.slack
        return self._end(values, low, -size), self._end(values, high, size)

    def _end(self, values: Any, bound: float, size: Any) -> Any:
        """An open end is open to every row, also to one at the other end of all numbers."""
        if np.isinf(bound):
            return np.full_like(values, bound)
        return values + bound + size + np.copysign(self.slack * abs(bound), size)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right` over a column of each input, compared as Spark does; NULL is no match."""

    left: str
    op: Operator
    right: str


@dataclass(frozen=True)
class JoinSpec:
    condition: str
    how: How
    columns: Mapping[str, tuple[str, ...]]
    """The columns of a result, by input."""
    types: Mapping[str, tuple[str, ...]]
    equality: bool = False
    verify: tuple[Comparison, ...] = ()
    """What to check of rows whose hashes are equal; nothing if the hash tells all keys apart."""
    bands: tuple[BandSpec, ...] = ()
    checks: tuple[Comparison, ...] = ()
    window: Window = field(default_factory=Window)
    lateness: int = 0
    time: bool = False
    """Whether rows carry `_time`."""
    rows: bool = False
    """Whether rows carry `_row`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    hashing: str = XXHASH64
    """Which hash `_key` is."""
    clock: str | None = None
    """The columns that `_time` comes from, and the zone where they are read in one."""

    @property
    def ranges(self) -> tuple[BandSpec, ...]:
        """All bands, that of a sliding window included; the narrowest of the condition's own comes first."""
        if self.window.kind == "sliding":
            size = float(self.window.size)
            return (*self.bands, BandSpec(TIME, -size, size))
        return self.bands

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that segments are sorted by, the first one foremost."""
        columns = (KEY,) if self.equality else ()
        bounded = [b for b in self.ranges if np.isfinite(b.lo) and np.isfinite(b.hi)] or list(self.ranges)
        return (*columns, *([bounded[0].column] if bounded else []))

    @property
    def preserved(self) -> tuple[str, ...]:
        """The inputs whose rows the result shows, or counts, whether matched or not."""
        kept = {"left": ("left",), "right": ("right",), "full": INPUTS, "left_semi": ("left",), "left_anti": ("left",)}
        return kept.get(self.how, ())

    @property
    def pairs(self) -> bool:
        """Whether matching pairs are part of the result."""
        return self.how not in ("left_semi", "left_anti")

    @property
    def required(self) -> tuple[str, ...]:
        """Engine columns without which a row matches nothing."""
        return tuple(dict.fromkeys([*([KEY] if self.equality else []), *(b.column for b in self.ranges)]))

    def to_json(self) -> dict[str, Any]:
        doc = asdict(self)
        doc["window"] = self.window.to_json()
        return dict(doc)


_PARTS = ("condition", "how", "columns", "types", "window", "lateness", "time", "equality", "bands", "verify", "checks",
          "hashing", "clock")
_NAMES = {"how": "join type", "columns": "set of columns", "types": "schema", "bands": "condition",
          "verify": "condition", "checks": "condition", "equality": "condition", "time": "time column",
          "hashing": "hash of keys", "clock": "event time"}  # fmt: skip
_SINCE = {"hashing": XXHASH64}
"""Parts that older states do not name, and what they were; a clock may have been any."""


def check_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a state that means something else."""
    for part in _PARTS:
        a, b = before.get(part, _SINCE.get(part)), now.get(part)
        if a != b and (part != "clock" or a is not None):
            raise StateMismatch.changed(_NAMES.get(part, part), _shown(a), _shown(b))


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) == {"kind", "size"}:
        return f"{value['kind']} {value['size']} µs"
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {', '.join(map(str, v))}" for k, v in value.items())
    return repr(value)


def empty_result(spec: JoinSpec, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The result's columns: those of the left input, then those of the right."""
    sides = ("left",) if spec.how in ("left_semi", "left_anti") else INPUTS
    return pa.schema([schemas[s].field(c) for s in sides for c in spec.columns[s]])
