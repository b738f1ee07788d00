"""Batch joins: plans made in Python, executed by Spark's own operators."""

from evenkeel.batch.two_way import JoinPlan, join, plan

__all__ = ["JoinPlan", "join", "plan"]
