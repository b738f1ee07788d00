"""The state as a Delta table: which segments are state, and how far the stream has come, in one atomic commit.

    commit n:  + segments written by epoch e   - segments merged or expired
               transaction (query, e)          routing table, watermark, counters as commit metadata

Invariant: version n of the table is the state after a whole number of epochs. A file that no commit adds is never
read, so a lost attempt leaves only rubbish for `vacuum`; a commit that another writer came before fails instead of
being merged with it.
Cost: one small JSON file an epoch (2 to 5 ms), written without a JVM.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from evenkeel.errors import StateConflict, StateUnreadable, StateUnwritable
from evenkeel.state.segment import KEY, TIME, Segment

PARTITIONS = ["side", "unit"]
_METADATA = "evenkeel"


@dataclass(frozen=True)
class Snapshot:
    """The state after `epoch`: all a reader needs, and nothing it could change."""

    epoch: int
    """The last epoch that was committed; -1 before the first."""
    segments: tuple[Segment, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)
    """What the last commit carried: routing table, watermark, counters."""

    def of(self, input: str, unit: int) -> list[Segment]:
        return [s for s in self.segments if s.input == input and s.unit == unit]

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.segments)

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)


class StateTable:
    """One query's state. `open` finds it or makes it; `commit` is the only way to change it."""

    def __init__(self, root: str, delta: DeltaTable, description: dict[str, Any]) -> None:
        self.root = root
        self.description = description
        self._delta = delta
        self._schema = delta.schema()
        self.snapshot = self._load()

    @property
    def query(self) -> str:
        return str(self.description["query"])

    @classmethod
    def find(cls, root: str) -> StateTable | None:
        """The state at `root`, or None where there is none."""
        try:
            delta = DeltaTable(root)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise StateUnreadable.at(root, str(error)) from error
        try:
            description = json.loads(delta.metadata().description or "")
            description["query"]
        except (ValueError, KeyError, TypeError):
            raise StateUnreadable.at(root, "it is a Delta table of something else") from None
        return cls(root, delta, description)

    @classmethod
    def create(cls, root: str, schema: pa.Schema, description: dict[str, Any]) -> StateTable:
        """An empty state; `schema` is that of all inputs' segments together."""
        fields = [pa.field("side", pa.string()), pa.field("unit", pa.int32()), *schema]
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            create_table_with_add_actions(
                root, Schema.from_arrow(pa.schema(fields)), [], partition_by=PARTITIONS,
                description=json.dumps(description),
            )  # fmt: skip
        except (DeltaError, OSError) as error:
            raise StateUnwritable.at(root, error) from error
        return cls(root, DeltaTable(root), description)

    def hand_over(self, query: str) -> None:
        """Give a state without any epoch to another query; the one it belonged to is refused from now on."""
        self.description = {**self.description, "query": query}
        try:
            self._delta.alter.set_table_description(json.dumps(self.description))
            self._delta.update_incremental()
        except (DeltaError, OSError) as error:
            raise StateUnwritable.at(self.root, error) from error

    def writable(self) -> None:
        """Find out before any row is read whether the state can be written to."""
        probe = Path(self.root, f"_evenkeel-{os.getpid()}")
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StateUnwritable.at(self.root, error) from error

    def commit(
        self, epoch: int, added: Sequence[Segment], removed: Sequence[Segment], progress: Mapping[str, Any]
    ) -> Snapshot:
        """Epoch `epoch` becomes part of the state, or nothing changes.

        A segment that is there already and is added with another unit changes hands: of one path the last addition
        counts, and the folder's name does not.
        """
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(s.path, s.size, _partition(s), now, True, json.dumps(_stats(s))) for s in added
        ]
        actions += [RemoveAction(s.path, True, now, s.size, _partition(s)) for s in removed]
        properties = CommitProperties(
            custom_metadata={_METADATA: json.dumps(dict(progress))},
            max_commit_retries=0,
            app_transactions=[Transaction(self.query, epoch)],
        )
        try:
            self._delta.create_write_transaction(
                actions, "append", self._schema, partition_by=PARTITIONS, commit_properties=properties
            )
        except CommitFailedError as error:
            raise StateConflict.at(self.root, str(error)) from error
        except (DeltaError, OSError) as error:
            raise StateUnwritable.at(self.root, error) from error
        self._delta.update_incremental()
        gone = {s.path for s in (*removed, *added)}
        kept = tuple(s for s in self.snapshot.segments if s.path not in gone)
        self.snapshot = Snapshot(epoch, (*kept, *added), dict(progress))
        return self.snapshot

    def vacuum(self, hours: int = 1) -> list[str]:
        """Delete files that no version of the last `hours` hours needs, lost attempts' files among them.

        Of segments alone: a checkpoint or a table of results below the state's folder is not ours to delete.
        """
        unused = self._delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        gone = [path for path in unused if path.startswith(f"{PARTITIONS[0]}=")]
        for path in gone:
            Path(self.root, path).unlink(missing_ok=True)
        return gone

    def _load(self) -> Snapshot:
        epoch = self._delta.transaction_version(self.query)
        if epoch is None:
            return Snapshot(-1)
        progress = self._progress()
        if progress is None or progress.get("epoch") != epoch:
            raise StateUnreadable.at(self.root, f"the progress of epoch {epoch} is not in its log")
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return Snapshot(epoch, tuple(_segment(r) for r in rows), progress)

    def _progress(self) -> dict[str, Any] | None:
        """What the last epoch's commit carried; a vacuum may have written to the log after it."""
        for limit in (4, 64, None):
            for commit in self._delta.history(limit):
                if _METADATA in commit:
                    return dict(json.loads(commit[_METADATA]))
        return None


def _partition(s: Segment) -> dict[str, str | None]:
    return {"side": s.input, "unit": str(s.unit)}


def _stats(s: Segment) -> dict[str, Any]:
    stats: dict[str, Any] = {"numRecords": s.rows, "nullCount": {KEY: s.null_keys}}
    if s.min_time is not None:
        stats |= {"minValues": {TIME: s.min_time}, "maxValues": {TIME: s.max_time}}
    return stats


def _segment(row: dict[str, Any]) -> Segment:
    name = row["path"].rpartition("/")[2]
    return Segment(
        path=row["path"],
        input=row["partition.side"],
        unit=int(row["partition.unit"]),
        rows=int(row["num_records"]),
        size=int(row["size_bytes"]),
        epoch=int(name.partition("-")[0]),
        min_time=row.get(f"min.{TIME}"),
        max_time=row.get(f"max.{TIME}"),
        null_keys=int(row.get(f"null_count.{KEY}") or 0),
    )


def merged_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all inputs, those of the engine once."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for f in schema:
            fields.setdefault(f.name, f.with_nullable(True))
    return pa.schema(list(fields.values()))
