"""Where results go: a sink is any `callable(df, batch_id)`; these make the usual ones.

| sink       | a batch that is run again after a crash |
|---|---|
| `delta`    | exactly once: the commit carries (query, batch) and is skipped the second time |
| `parquet`  | exactly once: a folder a batch, written anew |
| `memory`   | exactly once while the process lives: a table a batch |
| `kafka`, `console`, a callable of yours | at least once, the same rows under the same batch id |
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from evenkeel.errors import SinkUnwritable, UnusableFolder
from evenkeel.spark.session import local_path, settings

Sink = Callable[[DataFrame, int], None]
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Points in time as every reader of Delta tables understands them."""


_MISREAD = re.compile(r"[#?\\]|%[0-9a-fA-F]{2}")
"""What the library that commits takes for a part of a URL, and then looks elsewhere."""


def delta_folder(path: str | os.PathLike[str]) -> str:
    """The absolute path of a folder for a Delta table, for Spark's idea of the current folder is not Python's."""
    text = local_path(path)
    if "://" in text:
        raise UnusableFolder.remote(text)
    folder = str(Path(text).absolute())
    if found := _MISREAD.search(folder):
        raise UnusableFolder.misread(folder, found[0])
    return folder


class DeltaSink:
    """Spark writes the batch's files; `deltalake` commits them in one transaction."""

    def __init__(self, path: str, query: str = "evenkeel") -> None:
        self.path, self.query = delta_folder(path), query

    def of(self, query: str) -> DeltaSink:
        """The same sink for one query: several may append to one table, each with its own batches."""
        return DeltaSink(self.path, query)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        table = self._open(df)
        seen = table.transaction_version(self.query)
        if seen is not None and seen >= batch_id:
            return
        folder = f"batch-{batch_id:010d}-{uuid.uuid4().hex[:12]}"
        with settings(df.sparkSession, _SETTINGS):
            df.write.parquet(f"file://{self.path}/{folder}")
        now = int(time.time() * 1000)
        added: list[AddAction | RemoveAction] = []
        files = sorted(Path(self.path, folder).glob("*.parquet"))
        if not files:  # Spark writes one even where there are no rows
            raise SinkUnwritable.not_seen(self.path)
        for file in files:
            rows = pq.read_metadata(file).num_rows
            if rows:
                name = f"{folder}/{file.name}"
                added.append(AddAction(name, file.stat().st_size, {}, now, True, json.dumps({"numRecords": rows})))
        properties = CommitProperties(app_transactions=[Transaction(self.query, batch_id)], max_commit_retries=5)
        try:
            table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
        except DeltaError as error:
            raise SinkUnwritable.at(self.path, error) from error

    def _open(self, df: DataFrame) -> DeltaTable:
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            pass
        schema = to_arrow_schema(df.schema, timezone="UTC")
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            create_table_with_add_actions(
                self.path, Schema.from_arrow(pa.schema([f.with_nullable(True) for f in schema])), []
            )
        except (DeltaError, OSError) as error:
            raise SinkUnwritable.at(self.path, error) from error
        return DeltaTable(self.path)


def delta(path: str) -> Sink:
    """Append to a Delta table, each batch exactly once."""
    return DeltaSink(str(path))


def parquet(path: str) -> Sink:
    """A folder `batch_id=<n>` a batch under `path`; `spark.read.parquet(path)` reads them all."""

    def write(df: DataFrame, batch_id: int) -> None:
        if "batch_id" in map(str.lower, df.columns):
            raise SinkUnwritable.name_taken(str(path), "batch_id")
        df.write.mode("overwrite").parquet(f"{str(path).rstrip('/')}/batch_id={batch_id}")

    return write


def console(rows: int = 20, truncate: bool = True) -> Sink:
    """Print the first rows of every batch."""

    def write(df: DataFrame, batch_id: int) -> None:
        print(f"batch {batch_id}")
        df.show(rows, truncate)

    return write


class MemorySink:
    """Results as Arrow tables in the driver's memory, and as the temporary view `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = df.toArrow()
        df.sparkSession.createDataFrame(self.table, df.schema).createOrReplaceTempView(self.name)

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables([self.batches[b] for b in sorted(self.batches)])


def memory(name: str) -> MemorySink:
    """For notebooks and tests; `sink.table` is everything so far."""
    return MemorySink(name)


def kafka(topic: str, **options: Any) -> Sink:
    """Every row as JSON to a Kafka topic, with Spark's own Kafka writer; `options` as `servers="host:9092"`."""
    given = {("kafka.bootstrap.servers" if k == "servers" else k): str(v) for k, v in options.items()}

    def write(df: DataFrame, batch_id: int) -> None:
        df.selectExpr("to_json(struct(*)) AS value").write.format("kafka").options(topic=topic, **given).save()

    return write
