"""How pairs are found inside a region. Never imports pyspark."""

from evenkeel.local.base import LocalJoin
from evenkeel.local.bins import Bins
from evenkeel.local.merge_on_packed import KeyAndRegion, KeyInNumber, MergeOnPacked
from evenkeel.local.registry import LOCAL_JOINS, local_named

__all__ = ["LOCAL_JOINS", "Bins", "KeyAndRegion", "KeyInNumber", "LocalJoin", "MergeOnPacked", "local_named"]
