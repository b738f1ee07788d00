"""The small words that every part shares: sides, join types, schemes, and how sure a number is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from evenkeel.errors import InvalidWorkers, UnknownOption

Side = Literal["left", "right"]
"""Which input a row belongs to."""
SIDES: tuple[Side, Side] = ("left", "right")


def other(side: Side) -> Side:
    return "right" if side == "left" else "left"


How = Literal["inner", "left", "right", "full", "left_semi", "left_anti", "cross"]
"""The join types; `parse_how` also takes Spark's synonyms."""

_SYNONYMS: dict[str, How] = {
    "outer": "full",
    "fullouter": "full",
    "leftouter": "left",
    "rightouter": "right",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "anti": "left_anti",
    "leftanti": "left_anti",
}

SchemeName = Literal["auto", "hash", "broadcast", "heavy_light", "one_bucket", "m_bucket", "equi_weight"]
"""How rows are mapped to regions; `auto` compares the others and picks one."""

CubeName = Literal["auto", "hash", "random", "hybrid", "per_value"]
"""How the rows of a multi-way join are mapped to regions."""

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


def parse_how(how: str) -> How:
    word = str(how).lower()
    if word in get_args(How):
        return word  # type: ignore[return-value]
    folded = word.replace("_", "")
    if folded in _SYNONYMS:
        return _SYNONYMS[folded]
    raise UnknownOption.of("join type", how, get_args(How))


def parse_scheme(scheme: str) -> SchemeName:
    if scheme in get_args(SchemeName):
        return scheme  # type: ignore[return-value]
    raise UnknownOption.of("scheme", scheme, get_args(SchemeName))


def parse_cube(scheme: str) -> CubeName:
    if scheme in get_args(CubeName):
        return scheme  # type: ignore[return-value]
    raise UnknownOption.of("multi-way scheme", scheme, get_args(CubeName))


def parse_workers(workers: Any) -> int:
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
        raise InvalidWorkers.of(workers)
    return int(workers)


def parse_suffixes(suffixes: Any) -> tuple[str, str]:
    if isinstance(suffixes, (tuple, list)) and len(suffixes) == 2 and all(isinstance(s, str) for s in suffixes):
        return suffixes[0], suffixes[1]
    raise UnknownOption.of("pair of suffixes", suffixes, ["('', '_r')", "('_l', '_r')"])


def preserved(how: How) -> frozenset[Side]:
    """The sides whose rows each count once in the result, matched or not.

    A copy of such a row must not speak for the row: only all copies together know whether it matched.
    """
    if how in ("left", "left_semi", "left_anti"):
        return frozenset({"left"})
    if how == "right":
        return frozenset({"right"})
    return frozenset(SIDES) if how == "full" else frozenset()


def kept(how: How) -> frozenset[Side]:
    """The sides whose rows are in the result, or may be, though they match nothing."""
    return frozenset() if how == "left_semi" else preserved(how)


@dataclass(frozen=True, slots=True)
class Exact:
    """A number that was counted: correctness may rest on it."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:,.0f}"


@dataclass(frozen=True, slots=True)
class Inexact:
    """An estimate: only cost may rest on it."""

    value: float

    def __str__(self) -> str:
        return f"~{self.value:,.0f}"


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing is known; whatever is combined with it is not known either."""

    def __str__(self) -> str:
        return "unknown"


Precision = Exact | Inexact | Absent
