"""Evenkeel: distributed joins on Spark that do not suffer from skew."""

from evenkeel import bucketed
from evenkeel.batch import JoinPlan, MultiJoinPlan, join, multi_join, plan, plan_multi
from evenkeel.errors import EvenkeelError
from evenkeel.report import LoadReport
from evenkeel.simulate import SimulationReport, simulate
from evenkeel.streaming.structured import agg, sinks
from evenkeel.streaming.structured.query import StreamJoin, StreamJoinQuery, stream_join
from evenkeel.streaming.windows import tumbling

__version__ = "0.1.0"
__all__ = [
    "EvenkeelError",
    "JoinPlan",
    "LoadReport",
    "MultiJoinPlan",
    "SimulationReport",
    "StreamJoin",
    "StreamJoinQuery",
    "__version__",
    "agg",
    "bucketed",
    "join",
    "multi_join",
    "plan",
    "plan_multi",
    "simulate",
    "sinks",
    "stream_join",
    "tumbling",
]
