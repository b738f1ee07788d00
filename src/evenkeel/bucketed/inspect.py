"""A bucketed table in words and bars: buckets, shards, sizes, the hottest keys."""

from __future__ import annotations

import os

import numpy as np

from evenkeel import charts
from evenkeel.bucketed.metadata import NULL_BUCKET
from evenkeel.bucketed.store import Store
from evenkeel.bucketed.table import BucketedTable, open_table

_WIDTH = 40


def inspect(path: str | os.PathLike[str], *, lines: int = 32, check: bool = False) -> str:
    """What is in the table; with `check`, every file is compared with its checksum first."""
    table = open_table(path)
    if check:
        store = Store.at(path)
        for file in table.meta.files:
            store.check(file)
    return describe(table, lines) + (f"\nall {len(table.meta.files)} files are as they were written" if check else "")


def describe(table: BucketedTable, lines: int = 32) -> str:
    meta = table.meta
    limit = f"bucket size {_size(meta.bucket_size)}" if meta.bucket_size else "a fixed number of buckets"
    out = [
        f"{table.path}",
        f"  {meta.rows:,} rows, {_size(meta.bytes)} in {len(meta.files)} files, generation {meta.generation}",
        f"  key {', '.join(f'{k.name} {k.type}' for k in meta.key)}; hash {meta.hash} version {meta.hash_version}",
        f"  {meta.buckets} buckets, {len(meta.sharded)} of them sharded, {len(meta.units)} shards; {limit}",
    ]
    sizes = {b: sum(u.bytes for u in units) for b, units in meta.by_bucket.items()}
    if not sizes:
        return "\n".join([*out, "  no rows"])
    shards = np.array([u.bytes for u in meta.units], dtype=np.float64)
    out.append(f"  largest shard {_size(int(shards.max()))}, {shards.max() / shards.mean():.2f} x the mean")
    by_bucket = np.array([sizes.get(b, 0) for b in range(meta.buckets)], dtype=np.float64)
    out += ["", "bytes by bucket", charts.bars(by_bucket), "", "bucket  shards       rows        size"]
    peak = max(sizes.values())
    listed = sorted(sizes, key=lambda b: -sizes[b])[:lines]
    for b in sorted(listed):
        units = meta.by_bucket[b]
        name = "NULL" if b == NULL_BUCKET else str(b)
        bar = "█" * max(1, round(_WIDTH * sizes[b] / peak))
        out.append(f"{name:>6}  {len(units):>6}  {sum(u.rows for u in units):>9,}  {_size(sizes[b]):>10}  {bar}")
    if len(sizes) > len(listed):
        out.append(f"        and {len(sizes) - len(listed)} smaller ones")
    if meta.hot_keys:
        out += ["", "hottest keys"]
        for h in meta.hot_keys[:10]:
            shown = ", ".join("NULL" if v is None else v for v in h.key)
            out.append(f"  {shown[:40]:<40}  {h.rows:>12,} rows  {100 * h.rows / max(1, meta.rows):5.1f} %")
    return "\n".join(out)


def _size(count: int) -> str:
    value, units = float(count), ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""
