"""`on` becomes a Condition: sqlglot finds the structure, and the user's own text is what runs.

The text is cut at its top-level ANDs and only the column references in it are replaced; nothing
is regenerated, so an expression means to Spark exactly what the user wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel.conditions.band import Band, merged
from evenkeel.conditions.clauses import clauses, equality
from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.ranges import as_bands
from evenkeel.conditions.text import Names, bind_text
from evenkeel.conditions.theta import Theta
from evenkeel.errors import OneSidedCondition, UnparsableCondition
from evenkeel.types import SIDES, How, Side


def parse_on(on: str | Sequence[str] | None, how: How, names: Names) -> Condition:
    if on is None:
        if how == "cross":
            return Condition(text="cross")
        raise UnparsableCondition.empty()
    if isinstance(on, str):
        if not on.strip():
            raise UnparsableCondition.empty()
        if all(names.find(side, on) is not None for side in SIDES):
            return _using([on], names)
        return _parse_text(on, names)
    if not isinstance(on, (list, tuple)) or not all(isinstance(n, str) for n in on):
        raise UnparsableCondition.wrong_type(on)
    if not on:
        raise UnparsableCondition.empty()
    once: dict[int, str] = {}
    for name in on:
        once.setdefault(names.index("left", name), name)
    return _using(list(once.values()), names)


def _using(on: list[str], names: Names) -> Condition:
    at: dict[Side, tuple[int, ...]] = {s: tuple(names.index(s, n) for n in on) for s in SIDES}
    equi = tuple(
        Equi(bound("left", i), bound("right", j), False, f"l.{n} = r.{n}")
        for n, i, j in zip(on, at["left"], at["right"], strict=True)
    )
    return Condition(" AND ".join(e.text for e in equi), equi, (), tuple(on), at)


def _parse_text(text: str, names: Names) -> Condition:
    equi: list[Equi] = []
    bands: list[Band] = []
    residual: list[Theta] = []
    used: dict[Side, set[int]] = {"left": set(), "right": set()}
    for start, end in clauses(text):
        part = bind_text(text, start, end, names)
        for side in SIDES:
            used[side] |= part.columns[side]
        pair = _as_equi(text, start, end, names)
        if pair is not None:
            equi.append(pair)
        else:
            bands += as_bands(text[start:end], names)
            residual.append(Theta(part.sql, text[start:end].strip()))
    for side in SIDES:
        if not used[side]:
            _suggest_name(text, names)
            raise OneSidedCondition.missing(side, text.strip())
    return Condition(
        " ".join(text.split()),
        tuple(equi),
        tuple(residual),
        (),
        {s: tuple(sorted(used[s])) for s in SIDES},
        merged(bands),
    )


def _suggest_name(text: str, names: Names) -> None:
    """A lone word that is no column of both inputs was meant as a name."""
    word = text.strip()
    if word.isidentifier():
        for side in SIDES:
            names.index(side, word)


def _as_equi(text: str, start: int, end: int, names: Names) -> Equi | None:
    """The conjunct as an equality of the two inputs, whichever way round it was written."""
    found = equality(text, start, end)
    if found is None:
        return None
    first, second = (bind_text(text, *span, names) for span in found.sides)
    if first.columns["left"] and not first.columns["right"]:
        left, right = first, second
    else:
        left, right = second, first
    if left.columns["right"] or right.columns["left"] or not left.columns["left"] or not right.columns["right"]:
        return None
    return Equi(left.sql, right.sql, found.null_safe, text[start:end].strip())
