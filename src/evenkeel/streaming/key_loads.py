"""A unit's heaviest keys, without counting all of them: sorted runs are looked at in strides.

    run, sorted by key   ▏aaaaaaaaa▏bcdefffffffffff▏ghhijk     every key with a stride's worth of rows is met
    candidates           the keys met, with their exact counts in that run, by binary search
    counts               in all runs, for the few candidates that are heaviest over the runs they were met in

Cost: O(STEPS log n) a run of n rows; runs of up to STEPS rows are read whole.
Source: the per-key statistics that FastJoin's monitor asks of the heaviest instance (section III-C); a run in key
order takes the place of its hash maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evenkeel.streaming.strategies.base import KeyLoad
from evenkeel.types import Int64

STEPS = 1024
"""Rows of a run that are looked at: a key with fewer than 1/STEPS of its rows may be missed."""
Runs = Sequence[Int64]


def heaviest_keys(
    stored: Mapping[str, Runs], fresh: Mapping[str, Int64], probing: Mapping[str, Int64], most: int
) -> dict[str, list[KeyLoad]]:
    """By input, the same keys in the same order: by their share of all stored and of all probing rows.

    `stored` are sorted keys of the segments, `fresh` those that the epoch adds, `probing` those that probed.
    """
    held = {i: [*stored[i], fresh[i]] for i in stored}
    all_stored = max(1, sum(len(r) for runs in held.values() for r in runs))
    all_probing = max(1, sum(len(r) for r in probing.values()))
    met, shares = [], []
    for total, runs in ((all_stored, [r for rs in held.values() for r in rs]), (all_probing, list(probing.values()))):
        for run in runs:
            found, rows = _met(run)
            met.append(found)
            shares.append(rows / total)
    keys, at = np.unique(np.concatenate(met), return_inverse=True)
    weight = np.bincount(at, weights=np.concatenate(shares))
    keys = keys[np.lexsort((keys, -weight))[: 2 * most]]
    counted: dict[str, tuple[Int64, Int64, Int64]] = {}
    for i in held:
        now = _count(fresh[i], keys)
        counted[i] = sum((_count(r, keys) for r in stored[i]), start=now), now, _count(probing[i], keys)
    exact = np.asarray(
        sum(c[0] for c in counted.values()) / all_stored + sum(c[2] for c in counted.values()) / all_probing
    )
    order = np.lexsort((keys, -exact))[:most] if len(keys) else keys
    return {
        i: [KeyLoad(int(keys[k]), int(a[k]), int(b[k]), int(c[k])) for k in order] for i, (a, b, c) in counted.items()
    }


def _met(run: Int64) -> tuple[Int64, Int64]:
    """Keys met in strides, and how many rows each has in the run."""
    stride = max(1, len(run) // STEPS)
    keys, times = np.unique(run[stride // 2 :: stride], return_counts=True)
    return keys, times if stride == 1 else _count(run, keys)


def _count(run: Int64, keys: Int64) -> Int64:
    return np.searchsorted(run, keys, side="right") - np.searchsorted(run, keys, side="left")
