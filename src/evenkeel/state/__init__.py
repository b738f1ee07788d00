"""What a stream join remembers: immutable sorted segments, listed by a Delta table. Never imports pyspark."""

from evenkeel.state.cache import SegmentCache
from evenkeel.state.compaction import Tiers
from evenkeel.state.segment import Segment, write_segment
from evenkeel.state.table import Snapshot, StateTable

__all__ = ["Segment", "SegmentCache", "Snapshot", "StateTable", "Tiers", "write_segment"]
