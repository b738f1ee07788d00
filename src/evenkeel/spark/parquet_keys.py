"""Keys of an input that is nothing but Parquet files of this machine: read from them, without a Spark job.

A job that looks at a million keys takes Spark 0.1 s, nearly all of it to plan and to start tasks; decoding them takes
a tenth of that (docs/adr/0055). Everything else is left to Spark: inputs that are more than a scan, files on other
machines, more rows than a driver should read, keys of other types than the files hold, and whatever fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
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
from evenkeel.types import Int64, Side

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
    """The keys of a sample of the rows, each once."""

    hashes: Int64
    counts: Int64
    rows: int
    null_rows: int
    """Those that can match nothing."""
    rate: float
    numbers: WholeNumbers | None


def read_keys(join: BoundJoin, side: Side, explained: str, wanted: int) -> FileKeys | None:
    """The keys of about `wanted` rows, or of all; None where Spark is to look."""
    names = parquet_columns(explained, join.key_columns(side))
    stored = [_STORED.get(type(kind)) for kind in join.key_types]
    if names is None or None in stored or over_connect(join.left.sparkSession):
        return None
    paths = join.side(side).inputFiles()
    if not 0 < len(paths) <= MOST_FILES or not all(path.startswith("file:/") for path in paths):
        return None
    try:
        files = [pq.ParquetFile(unquote(local_path(path))) for path in sorted(paths)]
        return _sampled(join, files, pa.schema(list(zip(names, stored, strict=True))), wanted)
    except (OSError, pa.ArrowException):  # Spark will say what is wrong, if it is
        return None


def _sampled(join: BoundJoin, files: list[pq.ParquetFile], keys: pa.Schema, wanted: int) -> FileKeys | None:
    rows = sum(file.metadata.num_rows for file in files)
    if rows > MOST_ROWS or any(_type_in(file, field.name) != field.type for file in files for field in keys):
        return None
    rate, rng = sampling_rate(rows, wanted), np.random.default_rng(SEED)
    parts, ends, whole_number = [], [], len(keys) == 1 and pa.types.is_integer(keys.field(0).type)
    for file in files:
        part = file.read(columns=keys.names, use_threads=False)
        if whole_number:
            ends.append(pc.min_max(part.column(0)).as_py())
        if rate < 1.0:
            part = part.combine_chunks().take(_one_of_each(len(part), rate, rng))
        parts.append(part)
    table = pa.concat_tables(parts)
    strict = [not e.null_safe for e in join.condition.equi]
    unmatchable = np.zeros(len(table), dtype=bool)
    for column, needed in zip(table.columns, strict, strict=True):
        if needed and column.null_count:
            unmatchable |= np.asarray(column.is_null())
    nulls = int(unmatchable.sum())
    if nulls:
        table = table.filter(pa.array(~unmatchable))
    numbers = None
    if whole_number and not table.column(0).null_count:  # counted first: there are fewer keys to hash than rows
        values, counts = np.unique(np.asarray(table.column(0)), return_counts=True)
        hashes = hashing.xxhash64([pa.array(values)])
        numbers = _numbers(ends, values)
    else:
        hashes, counts = np.unique(hashing.xxhash64(table.columns), return_counts=True)
    sampled = len(table) + nulls
    return FileKeys(hashes, counts, sampled, nulls, sampled / rows if rows else 1.0, numbers)


def _one_of_each(rows: int, rate: float, rng: np.random.Generator) -> Int64:
    """Rows cut into equal stretches, one drawn from each: at least as good as drawing every row by itself."""
    wanted = math.ceil(rows * rate)
    drawn = (np.arange(wanted) + rng.random(wanted)) * (rows / max(1, wanted))
    return np.minimum(drawn.astype(np.int64), rows - 1)


def _numbers(ends: list[dict[str, int | None]], values: npt.NDArray[np.integer]) -> WholeNumbers:
    least = min((e["min"] for e in ends if e["min"] is not None), default=0)
    most = max((e["max"] for e in ends if e["max"] is not None), default=-1)
    return WholeNumbers(least, most, values[:: max(1, len(values) // SOME)].astype(np.int64))


def _type_in(file: pq.ParquetFile, name: str) -> pa.DataType | None:
    """What a file holds in a column of this name, and of no other case."""
    schema = file.schema_arrow
    return schema.field(name).type if schema.names.count(name) == 1 else None
