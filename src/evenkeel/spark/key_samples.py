"""Samples of the join keys of many relations: all of a small one, some hundred thousand rows of a large one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from evenkeel.spark.inputs import row_bytes, row_estimate
from evenkeel.spark.labels import readable, text_sql
from evenkeel.spark.multi_binding import BoundQuery
from evenkeel.spark.multi_exchange import hashed
from evenkeel.spark.sampling import draw, sample
from evenkeel.stats import KeyGroups

SAMPLE_ROWS = 100_000
AT_ONCE = 4
"""Relations that are sampled at a time."""
NAMED_FROM = 2_000
"""Rows that are looked at to name hot values."""


def sample_keys(bound: BoundQuery, explained: tuple[str, ...]) -> tuple[tuple[KeyGroups, ...], float]:
    """The key groups of every relation, and how long it took to find them."""
    start = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = tuple(pool.map(lambda i: _sample(bound, i, explained[i]), bound.query.relations))
    return found, time.perf_counter() - start


def _sample(bound: BoundQuery, relation: int, explained: str) -> KeyGroups:
    df = bound.frames[relation]
    attributes, together = bound.query.of(relation), bound.query.together(relation)
    if not attributes:
        return KeyGroups.even(float(df.count()), attributes)
    columns = [f"{k} AS h{j}" for j, k in enumerate(hashed(bound, relation))]
    drawn = sample(df, columns, row_estimate(explained, row_bytes(df.schema)), SAMPLE_ROWS)
    if drawn is not None:
        rows = len(drawn.rows) / drawn.rate
    else:
        rows = float(df.count())
        rate = min(1.0, SAMPLE_ROWS / max(1.0, rows))
        drawn = draw(df, columns, rate)
    found = np.stack([c.to_numpy() for c in drawn.rows.columns], axis=1).astype(np.int64)
    return KeyGroups.from_sample(rows, attributes, found, drawn.rate, together)


def value_labels(bound: BoundQuery, relation: int) -> dict[int, dict[int, str]]:
    """Values of the first rows as text, by attribute and hash: a hot value is among them."""
    attributes = bound.query.of(relation)
    if not attributes:
        return {}
    columns = []
    for j, (a, key) in enumerate(zip(attributes, hashed(bound, relation), strict=True)):
        column = bound.query.attributes[a].columns[relation]
        text = text_sql(f"`{column}`", bound.frames[relation].schema[column].dataType)
        columns += [f"{key} AS h{j}", f"{text} AS v{j}"]
    table = bound.frames[relation].selectExpr(*columns).limit(NAMED_FROM).toArrow()
    labels: dict[int, dict[int, str]] = {}
    for j, a in enumerate(attributes):
        named = zip(table[f"h{j}"].to_pylist(), map(readable, table[f"v{j}"]), strict=True)
        labels[a] = {h: v for h, v in named if v is not None}
    return labels
