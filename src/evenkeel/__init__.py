"""Evenkeel: distributed joins on Spark that do not suffer from skew."""

from evenkeel.batch import JoinPlan, join, plan
from evenkeel.errors import EvenkeelError
from evenkeel.report import LoadReport
from evenkeel.streaming.structured import agg, sinks
from evenkeel.streaming.structured.query import StreamJoin, StreamJoinQuery, stream_join
from evenkeel.streaming.windows import tumbling

__version__ = "0.1.0"
__all__ = [
    "EvenkeelError", "JoinPlan", "LoadReport", "StreamJoin", "StreamJoinQuery", "__version__", "agg", "join", "plan",
    "sinks", "stream_join", "tumbling",
]  # fmt: skip
