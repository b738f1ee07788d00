"""Bucketed tables: sorted once into buckets and shards, joined as often as needed without a shuffle."""

from evenkeel.bucketed.join import BucketJoinPlan, join, plan
from evenkeel.bucketed.source import register
from evenkeel.bucketed.table import BucketedTable, open_table
from evenkeel.bucketed.write import write

__all__ = ["BucketJoinPlan", "BucketedTable", "join", "open_table", "plan", "register", "write"]
