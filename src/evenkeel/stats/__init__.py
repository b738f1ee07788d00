"""What a plan knows of its inputs, with how sure it is. Never imports pyspark."""

from evenkeel.stats.join_stats import SEEN_ENOUGH, JoinStats, SideStats, WholeNumbers
from evenkeel.stats.key_groups import KeyGroups, matches
from evenkeel.stats.range_stats import Axis, Drawn, RangeStats

__all__ = [
    "SEEN_ENOUGH", "Axis", "Drawn", "JoinStats", "KeyGroups", "RangeStats", "SideStats", "WholeNumbers", "matches",
]  # fmt: skip
