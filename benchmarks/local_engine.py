"""The stream engine on key distributions, without Spark: real rows, real state, for comparison with the simulator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evenkeel.simulate import Distribution, SimulationReport
from evenkeel.simulate.distributions import draw
from evenkeel.simulate.run import Simulation, play
from evenkeel.state import SegmentCache
from evenkeel.state.table import merged_schema
from evenkeel.streaming.driver import Driver
from evenkeel.streaming.key_hash import in_turn
from evenkeel.streaming.local import LocalExecutor
from evenkeel.streaming.opening import open_state
from evenkeel.streaming.spec import INPUTS, JoinSpec, empty_result
from evenkeel.streaming.strategies import strategy_named
from evenkeel.streaming.strategies.base import Loads
from evenkeel.types import Float64, Int64

COLUMNS = {i: (f"{i[0]}_k", f"{i[0]}_id") for i in INPUTS}


def batch(dist: Distribution, input: str, rows: int, epoch: int, epochs: int, seed: int) -> pa.Table:
    keys = draw(dist, rows, epoch, epochs, seed + (input == "right"))
    number = np.arange(rows, dtype=np.int64) + epoch * rows
    return pa.table({COLUMNS[input][0]: keys, COLUMNS[input][1]: number, "_key": in_turn(keys)})


def run(strategy: str, left: Distribution, right: Distribution, units: int, epochs: int, rows: int, seed: int = 0
        ) -> list[Loads]:  # fmt: skip
    """The loads of every epoch; `rows` are those of an input and epoch."""
    dists = {"left": left, "right": right}
    spec = JoinSpec("l_k = r_k", "inner", COLUMNS, {i: ("bigint", "bigint") for i in INPUTS}, equality=True)
    first: dict[str, Any] = {i: batch(dists[i], i, 1, 0, epochs, seed).schema for i in INPUTS}
    out: list[Loads] = []
    with tempfile.TemporaryDirectory(prefix="evenkeel-engine-") as folder:
        root = str(Path(folder, "state"))
        schema = merged_schema([*first.values(), pa.schema([("_row", pa.int64())])])
        state = open_state(root, spec, strategy, units, {}, schema, "q")
        executor = LocalExecutor(spec, empty_result(spec, first), SegmentCache(root, str(Path(folder, "cache"))))
        driver = Driver(state, spec, strategy_named(strategy), units, executor, lambda results, epoch: None)
        for epoch in range(epochs):
            driver.run(epoch, {i: batch(dists[i], i, rows, epoch, epochs, seed) for i in INPUTS})
            assert driver.loads is not None
            out.append(driver.loads)
    return out


class SameRows(Simulation):
    """A simulation of the very keys that `run` draws: what differs is the engine, not the dice."""

    def arrivals(self, input: str) -> Int64:
        keys = draw(self.dists[input], self.rows[input], self.epoch, self.epochs, input == "right")
        drawn = np.bincount(keys, minlength=int(self.grains.key[-1]) + 1)
        first = np.searchsorted(self.grains.key, np.arange(len(drawn)))
        out = np.zeros(len(self.grains), dtype=np.int64)
        for key in np.flatnonzero(drawn).tolist():
            grains = int(self.grains.of_key[first[key]])
            parts = self.rng.multinomial(drawn[key], np.full(grains, 1 / grains))
            out[first[key] : first[key] + grains] = parts
        return out


def simulated(strategy: str, left: Distribution, right: Distribution, units: int, epochs: int, rows: int
              ) -> SimulationReport:  # fmt: skip
    """The simulator on the keys of `run`."""
    made = strategy_named(strategy)
    table = made.start(INPUTS, units, {})
    each = {i: rows for i in INPUTS}
    return play(
        SameRows(made, table, {"left": left, "right": right}, epochs, each),
        SimulationReport(strategy, units, 2 * rows * epochs),
    )


def difference(engine: list[Loads], simulated: list[Float64]) -> float:
    """How far apart the units' work over all epochs is, heaviest against heaviest, as a part of the engine's."""
    mine = np.sort(np.sum([[u.work for u in loads.units] for loads in engine], axis=0))
    theirs = np.sort(np.sum(simulated, axis=0))
    return float(np.max(np.abs(mine - theirs) / np.maximum(mine, 1.0)))
