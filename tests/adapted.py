"""Tables that strategies reach by adapting, for tests of what must hold of every one of them."""

from __future__ import annotations

import numpy as np

from evenkeel.simulate.distributions import HotKey, Wandering, Zipf
from evenkeel.simulate.run import Simulation
from evenkeel.streaming.strategies import STRATEGIES

INPUTS = ("left", "right")
ADAPTIVE = [s for s in STRATEGIES if hasattr(s, "adapt")]
BAND = {"lo": -3.0, "hi": 2.0}
WORLDS = {
    "zipf": (Zipf(1.2, 300), Zipf(1.5, 300)),
    "uniform": (Zipf(0.0, 300), Zipf(0.0, 300)),
    "flips": (HotKey(0.4, 3, Zipf(0.5, 300)), HotKey(0.4, 3, Zipf(0.5, 300))),
    "one side": (Zipf(0.0, 300), Zipf(2.0, 300)),
    "wandering": (Wandering(1.5, 300, 20.0), Wandering(1.0, 300, 10.0)),
}


def reached(strategy, world: str, units: int, seed: int, epochs: int = 8, ratio: int = 1, window=None):
    """Every table on the way, with how it was come by: (table before, table after, does state move)."""
    options = BAND if getattr(strategy, "needs_band", False) else {}
    table = strategy.start(INPUTS, units, options)
    left, right = WORLDS[world]
    run = Simulation(
        strategy, table, {"left": left, "right": right}, epochs, {"left": 2000, "right": 2000 * ratio}, window, seed
    )
    out = [(None, table, True)]
    for _ in range(epochs):
        before = run.table
        run.step()
        if run.table is not before:
            out.append((before, run.table, True))
    return out


def rows(count: int, seed: int):
    """Keys with many rows each, some of them the hot ones of the worlds; contents; positions."""
    from evenkeel.streaming.key_hash import in_turn

    rng = np.random.default_rng(seed)
    number = rng.choice([0, 1, 2, 3, 17, 36, 55, *range(100, 140)], count)
    return in_turn(number), rng.integers(-(2**63), 2**63 - 1, count), number.astype(np.float64)


def stored_in(table, input, key, row, position) -> set[tuple[int, int]]:
    p = table.place(input, key, row, position)
    return set(zip(p.row[p.store].tolist(), p.unit[p.store].tolist(), strict=True))
