"""What pairs of rows match: parsed once, understood everywhere. Never imports pyspark."""

from evenkeel.conditions.band import Band, Bound, Span
from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.multi import (
    MOST_RELATIONS,
    Attribute,
    Clause,
    Expression,
    MultiCondition,
    MultiEqui,
    Query,
    Relations,
    bound_in,
    parse_multi,
)
from evenkeel.conditions.parse import parse_on
from evenkeel.conditions.text import Names
from evenkeel.conditions.theta import Theta

__all__ = [
    "MOST_RELATIONS",
    "Attribute",
    "Band",
    "Bound",
    "Clause",
    "Condition",
    "Equi",
    "Expression",
    "MultiCondition",
    "MultiEqui",
    "Names",
    "Query",
    "Relations",
    "Span",
    "Theta",
    "bound",
    "bound_in",
    "parse_multi",
    "parse_on",
]
