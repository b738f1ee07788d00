"""Keys of an input that is nothing but Parquet files of this machine: read from them, without a Spark job.

A job that looks at a million keys takes Spark 0.1 s, nearly all of it to plan and to start tasks; decoding them takes
a tenth of that (docs/adr/0055). Everything else is left to Spark: inputs that are more than a scan, files on other
machines, more rows than a driver should read, keys of other types than the files hold, and whatever fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T

from evenkeel import hashing
from evenkeel.spark.binding import BoundJoin
from evenkeel.spark.inputs import parquet_columns
from evenkeel.spark.sampling import SEED, sampling_rate
from evenkeel.spark.session import local_path, over_connect
from evenkeel.stats import WholeNumbers
from evenkeel.types import Side

MOST_ROWS = 8_000_000
MOST_FILES = 256
SOME = 512
_STORED = {
    T.ByteType: pa.int8(), T.ShortType: pa.int16(), T.IntegerType: pa.int32(), T.LongType: pa.int64(),
    T.DateType: pa.date32(),
}  # fmt: skip
"""Keys that are hashed as quickly as they are read."""


@dataclass(frozen=True, eq=False)
class FileKeys:
    hashes: pa.Array
    """Of a sample of the rows; NULL where nothing can match."""
    rate: float
    numbers: WholeNumbers | None


def read_keys(join: BoundJoin, side: Side, explained: str, wanted: int) -> FileKeys | None:
    """The hashes of about `wanted` keys, or of all; None where Spark is to look."""
    names = parquet_columns(explained, join.key_columns(side))
    stored = [_STORED.get(type(kind)) for kind in join.key_types]
    if names is None or None in stored or over_connect(join.left.sparkSession):
        return None
    paths = join.side(side).inputFiles()
    if not 0 < len(paths) <= MOST_FILES or not all(path.startswith("file:/") for path in paths):
        return None
    try:
        files = [pq.ParquetFile(unquote(local_path(path)), memory_map=True) for path in sorted(paths)]
        return _sampled(join, files, pa.schema(list(zip(names, stored, strict=True))), wanted)
    except (OSError, pa.ArrowException):  # Spark will say what is wrong, if it is
        return None


def _sampled(join: BoundJoin, files: list[pq.ParquetFile], keys: pa.Schema, wanted: int) -> FileKeys | None:
    rows = sum(file.metadata.num_rows for file in files)
    if rows > MOST_ROWS or any(_type_in(file, field.name) != field.type for file in files for field in keys):
        return None
    chance, rng = round(2**16 * sampling_rate(rows, wanted)), np.random.default_rng(SEED)
    parts, bits = [], 0
    for file in files:
        part = file.read(columns=keys.names, use_threads=False)
        if pa.types.is_integer(keys.field(0).type):
            bits = max(bits, _bits(part.column(0)))
        if chance < 2**16:
            part = part.filter(pa.array(rng.integers(0, 2**16, len(part), dtype=np.uint16) < chance))
        parts.append(part)
    table = pa.concat_tables(parts)
    strict = [not e.null_safe for e in join.condition.equi]
    unmatchable = np.zeros(len(table), dtype=bool)
    for column, needed in zip(table.columns, strict, strict=True):
        if needed and column.null_count:
            unmatchable |= np.asarray(column.is_null())
    hashes = pa.array(hashing.xxhash64(table.columns), mask=unmatchable)
    numbers = None
    if len(keys) == 1 and pa.types.is_integer(keys.field(0).type):
        seen = np.asarray(table.column(0).drop_null(), dtype=np.int64)
        numbers = WholeNumbers(bits, seen[:: max(1, len(seen) // SOME)])
    return FileKeys(hashes, len(table) / rows if rows else 1.0, numbers)


def _type_in(file: pq.ParquetFile, name: str) -> pa.DataType | None:
    """What a file holds in a column of this name, and of no other case."""
    schema = file.schema_arrow
    return schema.field(name).type if schema.names.count(name) == 1 else None


def _bits(column: pa.ChunkedArray) -> int:
    ends = pc.min_max(column)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return 0 if least is None else max(most if most >= 0 else ~most, least if least >= 0 else ~least).bit_length() + 1
