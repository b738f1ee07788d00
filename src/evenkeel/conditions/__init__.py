"""What pairs of rows match: parsed once, understood everywhere. Never imports pyspark."""

from evenkeel.conditions.band import Band, Bound, Span
from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.parse import parse_on
from evenkeel.conditions.text import Names
from evenkeel.conditions.theta import Theta

__all__ = ["Band", "Bound", "Condition", "Equi", "Names", "Span", "Theta", "bound", "parse_on"]
