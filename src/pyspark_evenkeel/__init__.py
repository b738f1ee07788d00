"""Spark looks for data sources in packages of this name: `spark.read.format("evenkeel")` needs no registration."""

from evenkeel.bucketed.source import EvenkeelSource as DefaultSource

__all__ = ["DefaultSource"]
