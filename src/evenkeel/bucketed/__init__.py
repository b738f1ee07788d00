"""Bucketed tables: sorted once into buckets and shards, joined as often as needed without a shuffle."""

from evenkeel.bucketed.compact import compact
from evenkeel.bucketed.inspect import inspect
from evenkeel.bucketed.join import BucketJoinPlan, join, plan
from evenkeel.bucketed.many import join_many
from evenkeel.bucketed.source import register
from evenkeel.bucketed.table import BucketedTable, open_table
from evenkeel.bucketed.write import write

__all__ = [
    "BucketJoinPlan",
    "BucketedTable",
    "compact",
    "inspect",
    "join",
    "join_many",
    "open_table",
    "plan",
    "register",
    "write",
]
