"""Samples of the join keys of many relations: all of a small one, some hundred thousand rows of a large one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from evenkeel.spark.inputs import row_bytes, size_in_bytes
from evenkeel.spark.multi_binding import BoundQuery
from evenkeel.spark.multi_exchange import hashed
from evenkeel.stats import KeyGroups
from evenkeel.types import Int64

SAMPLE_ROWS = 100_000
READ_WHOLE = 2 * SAMPLE_ROWS
"""Rows of a relation that are not worth sampling."""
MOST_ROWS = 1_000_000
"""Rows of a relation that the driver receives at the most, should Spark's estimate of its size be far off."""
SEED = 20150531
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
    keys = df.select(*(F.expr(k).alias(f"h{j}") for j, k in enumerate(hashed(bound, relation))), F.lit(0).alias("n"))
    if not attributes:
        return KeyGroups.even(float(df.count()), attributes)
    size = size_in_bytes(explained)
    if size is not None:
        rate = SAMPLE_ROWS / max(1.0, size / row_bytes(df.schema))
        if rate >= 0.5:
            found = _collect(keys.limit(MOST_ROWS + 1))
            if len(found) <= MOST_ROWS:
                return KeyGroups.from_sample(float(len(found)), attributes, found, 1.0, together)
        else:
            found = _collect(keys.sample(fraction=rate, seed=SEED).limit(MOST_ROWS + 1))
            if SAMPLE_ROWS / 4 <= len(found) <= MOST_ROWS:
                return KeyGroups.from_sample(len(found) / rate, attributes, found, rate, together)
    # Spark's estimate is missing, or far off
    rows = df.count()
    rate = min(1.0, SAMPLE_ROWS / max(1, rows))
    found = _collect(keys if rate >= 1.0 else keys.sample(fraction=rate, seed=SEED))
    return KeyGroups.from_sample(float(rows), attributes, found, rate, together)


def _collect(keys: DataFrame) -> Int64:
    table = keys.drop("n").toArrow()
    return np.stack([c.to_numpy() for c in table.columns], axis=1).astype(np.int64)


def value_labels(bound: BoundQuery, relation: int) -> dict[int, dict[int, str]]:
    """Values of the first rows as text, by attribute and hash: a hot value is among them."""
    attributes = bound.query.of(relation)
    if not attributes:
        return {}
    columns = []
    for j, (a, key) in enumerate(zip(attributes, hashed(bound, relation), strict=True)):
        column = bound.query.attributes[a].columns[relation]
        text = f"coalesce(left(cast(`{column}` as string), 40), 'NULL')"
        columns += [F.expr(key).alias(f"h{j}"), F.expr(text).alias(f"v{j}")]
    table = bound.frames[relation].select(*columns).limit(NAMED_FROM).toArrow()
    return {
        a: {h: str(v) for h, v in zip(table[f"h{j}"].to_pylist(), table[f"v{j}"].to_pylist(), strict=True)}
        for j, a in enumerate(attributes)
    }
