"""How many buckets and shards a table gets, from the number of rows in every cell of the hash.

    cells    count of rows by `pmod(hash(key), CELLS)`: one aggregate; every allowed bucket count divides CELLS
    buckets  bytes / bucket_size without what hot keys add, rounded up to 2^k or 3 * 2^k; 64 where there are rows enough
    shards   where a bucket is above the limit, all are cut into equal parts near to the mean of the others, from 1

So tables below 64 buckets' size all have the same count, which Spark can merge itself, and enough tasks to share; two
larger ones of one `bucket_size` have counts whose greatest common factor is at least a third, and mostly the whole, of
the smaller one. Shard 0 is a whole bucket: the hot ones can be told from the rest by their folder.
Cost: one pass over the keys. Paper: SMBJoinSkewed, III-B.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evenkeel.bucketed.metadata import NULL_BUCKET, TableMeta
from evenkeel.errors import UnusableBuckets
from evenkeel.types import Float64, Int64

CELLS = 3 * 2**15
"""A multiple of every bucket count that is chosen here. Fewer cells are counted where fewer will do."""
FEWEST_CELLS = 3 * 2**10
CELLS_A_BUCKET = 32
COUNTS = tuple(sorted({m * 2**k for m in (1, 3) for k in range(16)}))
MOST_BUCKETS = 1_000_000
COMMON_BUCKETS = 64
ROWS_A_BUCKET = 1024
"""Tables get `COMMON_BUCKETS`, whatever their size, as long as a bucket then has so many rows."""
NEAR = 1.25
"""Means of the whole buckets that a shard may have."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Shards:
    """Where new rows of a bucket go: shards `first`, `first + 1`, .. `first + count - 1`."""

    first: int
    count: int


@dataclass(frozen=True)
class BucketLayout:
    """Units are numbered: 0 .. buckets-1 are the first shards, then come further shards and the NULL bucket's."""

    buckets: int
    shards: Mapping[int, Shards]
    """Only of buckets with more than one shard, or whose rows go elsewhere than to shard 0."""

    def units(self) -> list[tuple[int, int]]:
        """(bucket, shard) by the number of the unit."""
        out = []
        for b in range(self.buckets):
            out.append((b, self.shards[b].first if b in self.shards else 0))
        for b, s in sorted(self.shards.items()):
            start = 1 if b != NULL_BUCKET else 0
            out += [(b, s.first + i) for i in range(start, s.count)]
        if NULL_BUCKET not in self.shards:
            out.append((NULL_BUCKET, 0))
        return out


def parse_size(size: object) -> int:
    """Bytes from a number or from text: 256MB is 256 million, 256MiB or 256M (as Spark reads it) is 2^28."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0:
        return int(size)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size) if isinstance(size, str) else None
    if found is None or found[2].upper() not in _UNITS or float(found[1]) <= 0:
        raise UnusableBuckets.size(size)
    return max(1, int(float(found[1]) * _UNITS[found[2].upper()]))


def parse_buckets(buckets: object) -> int:
    if isinstance(buckets, bool) or not isinstance(buckets, (int, np.integer)) or not 1 <= buckets <= MOST_BUCKETS:
        raise UnusableBuckets.count(buckets, MOST_BUCKETS)
    return int(buckets)


def cells_for(buckets: int | None, guess: float | None, bucket_size: int) -> int:
    """The modulus to count by: one that the bucket count divides, and fine enough to tell hot keys from full buckets.

    `guess` is about how many bytes there are. Every task of the count sends a row for each cell it has seen, so cells
    that are not needed cost time.
    """
    if buckets is not None:
        return buckets
    cells = FEWEST_CELLS if guess is not None else CELLS
    while guess is not None and cells < min(CELLS, CELLS_A_BUCKET * guess / bucket_size):
        cells *= 2
    return cells


def choose_buckets(cells: Int64, row_bytes: float, bucket_size: int) -> int:
    """Enough buckets that a cold one is at most `bucket_size`.

    A key hotter than half a bucket is sharded anyway, so its rows ask for shards, not for more buckets.
    """
    size = cells.astype(np.float64) * row_bytes
    cold = np.minimum(size, bucket_size / 2).sum()
    wanted = max(1, math.ceil(cold / bucket_size), min(COMMON_BUCKETS, int(cells.sum()) // ROWS_A_BUCKET))
    usable = [int(n) for n in COUNTS if len(cells) % n == 0]
    return next((n for n in usable if n >= wanted), usable[-1])


def bucket_rows(cells: Int64, buckets: int) -> Int64:
    """Rows by bucket: cell c belongs to bucket c mod buckets, since the bucket count divides the cells."""
    rows: Int64 = cells.reshape(-1, buckets).sum(axis=0)
    return rows


def plan_layout(
    rows: Int64, nulls: int, row_bytes: float, bucket_size: int, old: TableMeta | None = None
) -> BucketLayout:
    """Shards for every bucket that is, or with the rows that are there already becomes, too large."""
    buckets = len(rows)
    size = rows.astype(np.float64) * row_bytes
    limit = shard_size(size, bucket_size) if old is None else bucket_size
    shards: dict[int, Shards] = {}
    for b, new in [*((int(b), float(size[b])) for b in np.flatnonzero(rows)), (NULL_BUCKET, nulls * row_bytes)]:
        there = old.by_bucket.get(b, ()) if old is not None else ()
        found = _place(new, {u.shard: u.bytes for u in there}, limit)
        if found != Shards(0, 1):
            shards[b] = found
    return BucketLayout(buckets, shards)


def shard_size(size: Float64, bucket_size: int) -> float:
    """The limit, or less where buckets are cut and the others are small: a shard should be a task like theirs."""
    cold = size[(size > 0) & (size <= bucket_size)]
    if not len(cold) or size.max() <= bucket_size:
        return bucket_size
    return float(np.clip(NEAR * cold.mean(), bucket_size / 2, bucket_size))


def _place(new: float, there: dict[int, int], limit: float) -> Shards:
    """Beside the rows that are there while they fit, else in shards of their own."""
    if not there:
        count = max(1, math.ceil(new / limit))
        return Shards(1 if count > 1 else 0, count)
    first, known = min(there), max(there) + 1
    if max(there.values()) + new / (known - first) <= limit:
        return Shards(first, known - first)
    return Shards(known, max(1, math.ceil(new / limit)))


def break_even(bucketing: float, join: float, smb_join: float) -> int | None:
    """Formula (1): after how many joins bucketing has paid for itself; None when it never does."""
    if join <= smb_join:
        return None
    return max(1, math.ceil(bucketing / (join - smb_join)))
