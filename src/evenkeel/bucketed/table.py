"""A bucketed table as the caller sees it: where it is, and what its metadata says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from evenkeel.bucketed.metadata import TableMeta
from evenkeel.bucketed.store import Store


@dataclass(frozen=True, repr=False)
class BucketedTable:
    path: str
    meta: TableMeta

    @property
    def key(self) -> tuple[str, ...]:
        return self.meta.names

    @property
    def buckets(self) -> int:
        return self.meta.buckets

    @property
    def shards(self) -> int:
        """All shards of all buckets: the number of units that tasks read."""
        return len(self.meta.units)

    @property
    def rows(self) -> int:
        return self.meta.rows

    @property
    def bytes(self) -> int:
        return self.meta.bytes

    def __repr__(self) -> str:
        return (
            f"BucketedTable({self.path!r}: {self.rows:,} rows by ({', '.join(self.key)}), "
            f"{self.buckets} buckets, {self.shards} shards, {self.bytes:,} bytes)"
        )


def open_table(path: str | os.PathLike[str]) -> BucketedTable:
    """The table at a path, as it is now."""
    store = Store.at(path)
    return BucketedTable(store.path, store.read_meta())
