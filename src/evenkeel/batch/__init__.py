"""Batch joins: plans made in Python, executed by Spark's own operators."""

from evenkeel.batch.n_way import MultiJoinPlan, multi_join, plan_multi
from evenkeel.batch.two_way import JoinPlan, join, plan

__all__ = ["JoinPlan", "MultiJoinPlan", "join", "multi_join", "plan", "plan_multi"]
