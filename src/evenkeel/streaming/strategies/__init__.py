"""How the rows of a stream find their units: one protocol, one registry, one file an algorithm."""

from evenkeel.streaming.strategies.base import Loads, Placements, RoutingTable, Strategy
from evenkeel.streaming.strategies.registry import STRATEGIES, strategy_named, table_from_json

__all__ = ["STRATEGIES", "Loads", "Placements", "RoutingTable", "Strategy", "strategy_named", "table_from_json"]
