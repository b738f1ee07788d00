"""From what a user writes to a strategy that can run the join, or to an error that says why none can.

strategy="fastjoin(theta=2.2)"    a name and its options
units="4..32"                     any strategy, with a number of units that follows the load
strategy="auto"                   by condition now, by loads later (`strategies/auto.py`)
"""

from __future__ import annotations

from evenkeel.errors import StreamNotSupported, UnknownOption
from evenkeel.streaming.elastic import elastic
from evenkeel.streaming.spec import JoinSpec
from evenkeel.streaming.strategies import STRATEGIES, Strategy, strategy_named
from evenkeel.streaming.strategies.auto import Auto
from evenkeel.streaming.strategies.base import Adaptive, Options, adapts


def choose(asked: str, spec: JoinSpec, least: int, most: int, few: bool = False) -> tuple[Strategy, Options]:
    """The strategy asked for, and what its `start` is to be told; `few` if most units would have no key."""
    name, options = parse(asked)
    elastically = most > least
    strategy = _auto(spec, elastically, few) if name == "auto" else strategy_named(name)
    if elastically:
        strategy = elastic(strategy, least, most)
    for option in options:
        if option not in strategy.options:
            raise StreamNotSupported.no_option(name, option, strategy.options)
    if strategy.needs_equality and not spec.equality:
        raise StreamNotSupported.needs_equality(name, spec.condition)
    if adapts(strategy) and strategy.needs_band:
        if not spec.bands:
            raise StreamNotSupported.needs_band(name, spec.condition)
        options |= _band(spec)
    if elastically and spec.window.kind != "none":
        options["windowed"] = 1.0
    return strategy, options


def _auto(spec: JoinSpec, elastically: bool, few: bool) -> Strategy:
    """Few keys, or none, are joins of high selectivity, to be spread at random (BiStream, section 3.2.2)."""
    if spec.how not in ("inner", "cross") or few:
        return strategy_named("hash" if spec.equality and not few else "random")
    if spec.equality:  # fastjoin begins as hashing, too, but stores a hash more a row
        return strategy_named("fastjoin") if elastically else Auto(strategy_named("hash"), _adaptive("fastjoin"))
    if spec.bands and not elastically:
        return Auto(strategy_named("random"), _adaptive("adaptive_equi_weight"), _band(spec))
    if spec.window.kind != "none" and not elastically:  # a matrix keeps copies: only where rows expire
        return Auto(strategy_named("random"), _adaptive("adaptive_one_bucket"))
    return strategy_named("random")


def _adaptive(name: str) -> Adaptive:
    strategy = strategy_named(name)
    assert adapts(strategy)
    return strategy


def _band(spec: JoinSpec) -> dict[str, float]:
    band = spec.bands[0]
    return {"lo": band.lo, "hi": band.hi, "slack": band.slack}


def parse(asked: str) -> tuple[str, dict[str, float]]:
    """'contrand(d=4, e=2)' as its name and its options."""
    name, bracket, rest = str(asked).partition("(")
    name = name.strip()
    if name not in ("auto", *(s.name for s in STRATEGIES)):
        raise UnknownOption.of("strategy", name, ["auto", *(s.name for s in STRATEGIES)])
    options: dict[str, float] = {}
    if bracket and not rest.rstrip().endswith(")"):
        raise StreamNotSupported.option(asked)
    for part in rest.rstrip().removesuffix(")").split(",") if bracket else ():
        key, sign, value = (w.strip() for w in part.partition("="))
        try:
            options[key] = float(value)
        except ValueError:
            raise StreamNotSupported.option(asked) from None
        if not sign or not 0 <= options[key] < float("inf"):
            raise StreamNotSupported.option(asked)
    return name, options
