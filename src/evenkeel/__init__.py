"""Evenkeel: distributed joins on Spark that do not suffer from skew."""

from evenkeel import bucketed
from evenkeel.batch import JoinPlan, MultiJoinPlan, join, multi_join, plan, plan_multi
from evenkeel.errors import EvenkeelError
from evenkeel.report import LoadReport

__version__ = "0.1.0"
__all__ = [
    "EvenkeelError",
    "JoinPlan",
    "LoadReport",
    "MultiJoinPlan",
    "__version__",
    "bucketed",
    "join",
    "multi_join",
    "plan",
    "plan_multi",
]
