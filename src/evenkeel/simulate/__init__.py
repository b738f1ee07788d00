"""Strategies run on key distributions, without Spark: what thousands of units would see."""

from evenkeel.simulate.distributions import Distribution, HotKey, Sorted, Wandering, Zipf
from evenkeel.simulate.report import SimulationReport
from evenkeel.simulate.run import simulate

__all__ = ["Distribution", "HotKey", "SimulationReport", "Sorted", "Wandering", "Zipf", "simulate"]
