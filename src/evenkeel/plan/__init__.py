"""Joins planned in Python. Never imports pyspark."""

from evenkeel.plan.explain import explain, hot_keys
from evenkeel.plan.nodes import Candidate, Facts, TwoWay
from evenkeel.plan.optimizer import RULES, optimize

__all__ = ["RULES", "Candidate", "Facts", "TwoWay", "explain", "hot_keys", "optimize"]
