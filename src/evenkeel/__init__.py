"""Evenkeel: distributed joins on Spark that do not suffer from skew."""

from evenkeel import bucketed
from evenkeel.batch import JoinPlan, join, plan
from evenkeel.errors import EvenkeelError
from evenkeel.report import LoadReport

__version__ = "0.1.0"
__all__ = ["EvenkeelError", "JoinPlan", "LoadReport", "__version__", "bucketed", "join", "plan"]
