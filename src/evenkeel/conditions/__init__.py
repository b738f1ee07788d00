"""What pairs of rows match: parsed once, understood everywhere. Never imports pyspark."""

from evenkeel.conditions.condition import Condition, bound
from evenkeel.conditions.equi import Equi
from evenkeel.conditions.parse import Names, parse_on
from evenkeel.conditions.theta import Theta

__all__ = ["Condition", "Equi", "Names", "Theta", "bound", "parse_on"]
