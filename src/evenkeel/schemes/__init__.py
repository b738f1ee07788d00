"""How rows are mapped to regions. Never imports pyspark."""

from evenkeel.schemes.base import Batch, Bounds, Layout, Problem, Routed, RouteExpr, Scheme
from evenkeel.schemes.registry import SCHEMES, scheme_named

__all__ = ["SCHEMES", "Batch", "Bounds", "Layout", "Problem", "RouteExpr", "Routed", "Scheme", "scheme_named"]
