"""The sidecar of a bucketed table: a versioned, checksummed JSON file that alone says which files are the table.

Invariant: a row with key k stands in bucket `pmod(murmur3(k, 42), buckets)`, a row whose key holds a NULL in bucket
`NULL_BUCKET`; the shards of a bucket are disjoint parts of it; every file holds rows of one shard, sorted by key.
A reader trusts what is listed here and nothing else in the folder.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from evenkeel.errors import BrokenTable, IncompatibleTables

FORMAT = 1
FILE = "_evenkeel.json"
HASH = "spark-murmur3"
HASH_VERSION = 1
"""Murmur3 x86 32 with seed 42 over the key columns in order, as Spark's `hash` and its bucketed tables compute it."""
NULL_BUCKET = -1
SHARD = "_shard"
"""Files of bucket b and shard s are in `data-<id>/_shard=<s>/`, so that Spark sees the shard as a partition."""


@dataclass(frozen=True)
class KeyColumn:
    name: str
    type: str
    """Spark's name of the type, such as bigint or decimal(10,2)."""


@dataclass(frozen=True)
class HotKey:
    key: tuple[str | None, ...]
    """The values of the key columns, as text."""
    rows: int


@dataclass(frozen=True)
class DataFile:
    path: str
    """Relative to the table."""
    bucket: int
    shard: int
    rows: int
    bytes: int
    key_bytes: int
    """Of the key columns alone: what a reader that wants only keys has to read."""
    crc: int | None
    """CRC-32 of the file; None on stores that check what they hold themselves."""


@dataclass(frozen=True)
class Unit:
    """A shard of a bucket with all its files: what a task reads as a whole."""

    bucket: int
    shard: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def key_bytes(self) -> int:
        return sum(f.key_bytes for f in self.files)


@dataclass(frozen=True)
class TableMeta:
    """What `_evenkeel.json` holds."""

    key: tuple[KeyColumn, ...]
    buckets: int
    bucket_size: int
    schema: str
    """The schema as Spark's JSON."""
    files: tuple[DataFile, ...]
    hot_keys: tuple[HotKey, ...] = ()
    generation: int = 1
    """Counts commits, so that a writer notices another one."""
    retired: tuple[str, ...] = ()
    """Folders of the generation before, kept for readers that began with it."""
    hash: str = HASH
    hash_version: int = HASH_VERSION
    format: int = FORMAT

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        found: dict[tuple[int, int], list[DataFile]] = defaultdict(list)
        for f in self.files:
            found[f.bucket, f.shard].append(f)
        return tuple(Unit(b, s, tuple(files)) for (b, s), files in sorted(found.items()))

    @cached_property
    def by_bucket(self) -> dict[int, tuple[Unit, ...]]:
        found: dict[int, list[Unit]] = defaultdict(list)
        for unit in self.units:
            found[unit.bucket].append(unit)
        return {b: tuple(units) for b, units in found.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(k.name for k in self.key)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(str(f["name"]) for f in json.loads(self.schema)["fields"])

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def sharded(self) -> tuple[int, ...]:
        """The buckets that are cut into shards."""
        return tuple(b for b, units in self.by_bucket.items() if len(units) > 1 and b != NULL_BUCKET)

    def is_compatible_with(self, other: TableMeta) -> bool:
        return next(self._differences(other), None) is None

    def require_compatible(self, other: TableMeta, here: str, there: str) -> None:
        for why, hint in self._differences(other):
            raise IncompatibleTables.because(here, there, why, hint)

    def _differences(self, other: TableMeta) -> Iterator[tuple[str, str]]:
        if (self.hash, self.hash_version) != (other.hash, other.hash_version):
            yield (
                f"one uses the hash {self.hash} version {self.hash_version}, "
                f"the other {other.hash} version {other.hash_version}",
                "write one of them again with this version of evenkeel.",
            )
        mine, theirs = ([k.type for k in m.key] for m in (self, other))
        if len(mine) != len(theirs):
            yield (
                f"one is bucketed by ({', '.join(self.names)}), the other by ({', '.join(other.names)})",
                "write one of them again with the key of the other.",
            )
        elif mine != theirs:
            yield (
                f"their keys are of the types ({', '.join(mine)}) and ({', '.join(theirs)}), which hash differently",
                "cast the key of one of them and write it again.",
            )

    def after(self, **changes: Any) -> TableMeta:
        return replace(self, generation=self.generation + 1, **changes)

    def to_json(self) -> str:
        body = asdict(self)
        return json.dumps({"checksum": _checksum(body), "table": body}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> TableMeta:
        try:
            outer = json.loads(text)
            body, checksum = outer["table"], outer["checksum"]
            version = body["format"]
        except (ValueError, KeyError, TypeError):
            raise BrokenTable.metadata(path) from None
        if checksum != _checksum(body):
            raise BrokenTable.metadata(path)
        if version != FORMAT:
            raise BrokenTable.newer_format(path, version, FORMAT)
        body["key"] = tuple(KeyColumn(**k) for k in body["key"])
        body["files"] = tuple(DataFile(**f) for f in body["files"])
        body["hot_keys"] = tuple(HotKey(tuple(h["key"]), h["rows"]) for h in body["hot_keys"])
        body["retired"] = tuple(body["retired"])
        return cls(**body)


def _checksum(body: Any) -> str:
    """Over the content, not its layout: a formatter may touch the file, a flipped bit may not."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"crc32:{zlib.crc32(canonical.encode()):08x}"
