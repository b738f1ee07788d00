"""All strategies, in the order they are listed to users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel.errors import UnknownOption
from evenkeel.streaming.strategies.adaptive_equi_weight import AdaptiveEquiWeight
from evenkeel.streaming.strategies.adaptive_one_bucket import AdaptiveOneBucket
from evenkeel.streaming.strategies.base import RoutingTable, Strategy
from evenkeel.streaming.strategies.contrand import ContRand
from evenkeel.streaming.strategies.fastjoin import FastJoin
from evenkeel.streaming.strategies.hash import Hash
from evenkeel.streaming.strategies.hypercube import HyperCube
from evenkeel.streaming.strategies.one_bucket import OneBucket
from evenkeel.streaming.strategies.random import Random

STRATEGIES: tuple[Strategy, ...] = (
    Hash(),
    Random(),
    ContRand(),
    OneBucket(),
    FastJoin(),
    HyperCube(),
    AdaptiveOneBucket(),
    AdaptiveEquiWeight(),
)


def strategy_named(name: str) -> Strategy:
    for strategy in STRATEGIES:
        if strategy.name == name:
            return strategy
    raise UnknownOption.of("strategy", name, [s.name for s in STRATEGIES])


def table_from_json(doc: Mapping[str, Any]) -> RoutingTable:
    return strategy_named(str(doc["strategy"])).from_json(doc)
