"""How rows are mapped to regions. Never imports pyspark."""

from evenkeel.schemes.base import Batch, Layout, Problem, Routed, RouteExpr, Scheme
from evenkeel.schemes.registry import SCHEMES, scheme_named

__all__ = ["SCHEMES", "Batch", "Layout", "Problem", "RouteExpr", "Routed", "Scheme", "scheme_named"]
