"""Against text written down: what `explain` says of a multi-way join. Run with UPDATE=1, then read the diff."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenkeel.batch.n_way import MultiJoinPlan
from evenkeel.conditions import Attribute, Clause, Query
from evenkeel.plan.explain_multi import explain_multi
from evenkeel.plan.multi_way import MultiFacts, MultiWay, optimize_multi
from evenkeel.stats import KeyGroups
from evenkeel.types import Exact

HERE = Path(__file__).parent
ROWS = 1_000_000.0
Y, Z = 0, 1
CHAIN = Query(
    ("R", "S", "T"),
    (Attribute("R.y = S.y", {0: "_t0_1", 1: "_t1_0"}), Attribute("S.z = T.z", {1: "_t1_1", 2: "_t2_0"})),
    (Clause("`_t2_1` < `_t0_0`", "T.t < R.x", frozenset({0, 2})),),
    "R.y = S.y AND S.z = T.z AND T.t < R.x",
)
HASHES = np.arange(1, 201) * 7919**4 % (2**61)
ZIPF_2 = np.arange(1.0, 201) ** -2 / (np.arange(1.0, 201) ** -2).sum()
LABELS = {Z: dict(zip(HASHES.tolist(), (f"city {n}" for n in range(200)), strict=True))}


def even(attributes, values, rows=ROWS):
    return replace(KeyGroups.even(rows, attributes), distinct={a: float(values) for a in attributes})


def hot(attributes, values):
    """Zipf 2 in z; as many values of y as asked for."""
    keys = np.zeros((len(HASHES), len(attributes)), dtype=np.int64)
    known = np.zeros(keys.shape, dtype=bool)
    j = attributes.index(Z)
    keys[:, j], known[:, j] = HASHES, True
    distinct = {a: float(values) for a in attributes}
    return KeyGroups(Exact(ROWS), attributes, keys, known, ZIPF_2 * ROWS, distinct, labels=LABELS)


SKEWED = (even((Y,), 5000), hot((Y, Z), 5000), hot((Z,), 5000))
FOREIGN_KEYS = (even((Y,), ROWS), even((Y, Z), ROWS), even((Z,), 1000, 1000.0))
CASES = {
    "multi_per_value": (SKEWED, "auto"),
    "multi_pipeline": (FOREIGN_KEYS, "auto"),
    "multi_asked_for_hybrid": (SKEWED, "hybrid"),
}
CHOSEN = {"multi_per_value": "per_value", "multi_pipeline": "pipeline", "multi_asked_for_hybrid": "hybrid"}


@pytest.mark.parametrize("case", CASES)
def test_explain_multi(case):
    groups, scheme = CASES[case]
    facts = MultiFacts((16.0, 16.0, 16.0), (True, True, True))
    tree = optimize_multi(MultiWay(CHAIN, 64, scheme, facts, groups, 0.25))
    assert tree.scheme == CHOSEN[case]
    said = explain_multi(tree, MultiJoinPlan(None, tree).predicted) + "\n"
    written = HERE / f"{case}.txt"
    if os.environ.get("UPDATE"):
        written.write_text(said)
    assert said == written.read_text()
