"""Online aggregation: partial views are made where the pairs are, and merged into one view every epoch.

    units      pairs of the epoch, grouped in the task that found them (Spark's partial aggregation)
    merger     the view so far and the epoch's partial view, grouped again; written in one Delta transaction

Invariant: version e of the view is the aggregate of all results up to epoch e: the transaction (query, epoch) goes in
with the view, so an epoch that is run again is not added twice. Distinct values are sets in the view's own rows, one
row a window, until the watermark closes the window and only the aggregate is kept. Inputs are cut down to the columns
that condition, groups and aggregates read before they reach the router.
Cost: the view passes through the driver once an epoch: it is meant to be far smaller than the streams.
Source: BiStream, sections 3.4.1 (duplicates are eliminated within a window) and 3.4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegralType

from evenkeel.conditions import Names
from evenkeel.conditions.text import bind_text
from evenkeel.errors import (
    AmbiguousColumn,
    SinkUnwritable,
    StateConflict,
    StateMismatch,
    StreamNotSupported,
    UnparsableCondition,
)
from evenkeel.spark.session import local_path
from evenkeel.state import StateTable
from evenkeel.streaming.structured.agg import Aggregate
from evenkeel.streaming.structured.sinks import DeltaSink, Sink
from evenkeel.types import SIDES, Side

if TYPE_CHECKING:
    from evenkeel.streaming.structured.query import StreamJoin, StreamJoinQuery

VIEW = "_evenkeel-view"
MARK = "evenkeel.json"
"""A file in the checkpoint that names the state it belongs to."""
_APP = "evenkeel"
WINDOW = "window"
"""The column with the start of the window, where values are distinct within one."""
_AGGREGATES: dict[str, Callable[[Column], Column]] = {"sum": F.sum, "avg": F.avg, "count": F.count}
_PARTIAL: dict[str, Callable[[Column], Column]] = {"sum": F.sum, "min": F.min, "max": F.max, "count": F.count}


class StreamAggregate:
    """An aggregate over a stream join that is not running yet."""

    def __init__(self, join: StreamJoin, by: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self.join, self.aggregates = join, dict(aggregates)
        names = join.join.bound.names
        self.groups = dict(zip(_group_names(by, list(aggregates)), (_bound(b, names) for b in by), strict=True))
        self.exprs = {n: _bound(a.of, names) for n, a in aggregates.items() if a.of is not None}
        self._distinct = [n for n, a in self.aggregates.items() if a.distinct]
        if self._distinct:
            if join.join.spec.window.kind != "tumbling":
                raise StreamNotSupported.distinct_window(self._distinct)
            if WINDOW in (*self.groups, *self.aggregates):
                raise AmbiguousColumn.in_result(WINDOW, ("", ""))
        try:  # Spark's analyzer sees it all before anything starts
            both = join.join.bound.left.crossJoin(join.join.bound.right)
            averaged = {n: F.expr(self.exprs[n]) for n, a in self.aggregates.items() if a.kind == "avg"}
            kinds = both.select(*(value.alias(n) for n, value in averaged.items())).schema
            self._whole = {f.name for f in kinds if isinstance(f.dataType, IntegralType)}
            self._view(self._partial(both))
        except AnalysisException as error:
            message = next((t for t in str(error).split(" SQLSTATE")[0].splitlines() if t.strip()), "")
            raise UnparsableCondition.refused_by_spark(", ".join([*by, *self.exprs.values()]), message) from None

    def start(self, sink: Sink, *, checkpoint: str, trigger: Mapping[str, Any] | None = None) -> StreamJoinQuery:
        """Run it. `ek.sinks.delta(path)` keeps the view itself at `path`; a callable is given the view every epoch."""
        at = sink.path if isinstance(sink, DeltaSink) else str(Path(self.join.state, VIEW))
        self._check(at, checkpoint)
        tell = None if isinstance(sink, DeltaSink) else sink

        def merge(pairs: DataFrame, epoch: int) -> None:
            state = StateTable.find(self.join.state) if self._distinct else None
            view = self._merge(at, pairs, epoch, state.snapshot.progress.get("watermark") if state else None)
            if tell is not None:
                tell(view, epoch)

        return self.join._start(merge, checkpoint, trigger, shape=self.join.join.checked)

    def _check(self, at: str, checkpoint: str) -> None:
        """Refuse a view of another query, one that was made otherwise, and one that is not as far as the state is."""
        view, state = _opened(at), StateTable.find(self.join.state)
        if view is not None and state is None:
            raise StateMismatch.other_checkpoint(at, checkpoint)
        done = -1 if state is None else state.snapshot.epoch
        seen = None if view is None else view.transaction_version(_APP)
        if done < 0 and seen is not None and not (Path(local_path(checkpoint)) / MARK).exists():
            raise StateMismatch.other_checkpoint(at, checkpoint)
        if done >= 0 and (seen is None or not done <= seen <= done + 1):
            raise StateMismatch.other_view(at, seen, done)
        before = view.history(1)[0].get(_APP) if view is not None else None
        if before is not None and before != self._definition:
            raise StateMismatch.changed("aggregate", before, self._definition)

    @property
    def _definition(self) -> str:
        made = [
            f"{n} = {'distinct ' * a.distinct}{a.kind}({self.exprs.get(n, '*')})" for n, a in self.aggregates.items()
        ]
        return ", ".join(made) + " by " + ", ".join(f"{n} = {sql}" for n, sql in self.groups.items())

    def _group_columns(self) -> list[Column]:
        columns = [F.expr(sql).alias(n) for n, sql in self.groups.items()]
        if self._distinct:
            size, times = self.join.join.spec.window.size, self.join.join.times
            start = F.floor(F.coalesce(times["left"], times["right"]) / F.lit(size)) * F.lit(size)
            columns.insert(0, F.timestamp_micros(start.cast("bigint")).alias(WINDOW))
        return columns

    def _partial(self, pairs: DataFrame) -> DataFrame:
        """One row a group: sums, counts, least and greatest values, which can be merged with others'."""
        columns = []
        for name, a in self.aggregates.items():
            value = F.expr(self.exprs[name]) if name in self.exprs else F.lit(1)
            if a.distinct:
                # Of the type that the aggregate has, so that what is kept of a closed window fits.
                final = F.when(F.lit(False), _AGGREGATES[a.kind](value))
                columns += [F.collect_set(value).alias(f"_{name}_set"), final.alias(f"_{name}_final")]
            elif a.kind == "avg":
                if name in self._whole:  # as Spark's own average does, for a double does not overflow
                    value = value.cast("double")
                columns += [F.sum(value).alias(f"_{name}_sum"), F.count(value).alias(f"_{name}_count")]
            else:
                columns.append(_PARTIAL[a.kind](value).alias(name))
        return pairs.groupBy(*self._group_columns()).agg(*columns)

    def _view(self, partial: DataFrame, mark: int | None = None) -> DataFrame:
        """Partial views merged; the columns keep the types they have. Windows that end by `mark` are closed."""
        kinds = {f.name: f.dataType for f in partial.schema}
        columns = []
        for name, a in self.aggregates.items():
            if a.distinct:
                values = F.array_distinct(F.flatten(F.collect_list(f"_{name}_set")))
                columns += [values.alias(f"_{name}_set"), F.max(f"_{name}_final").alias(f"_{name}_final")]
                continue
            parts = [f"_{name}_sum", f"_{name}_count"] if a.kind == "avg" else [name]
            for part in parts:
                merge = {"min": F.min, "max": F.max}.get(a.kind, F.sum)
                columns.append(merge(F.col(part)).cast(kinds[part]).alias(part))
        groups = [*([WINDOW] if self._distinct else []), *self.groups]
        merged = partial.groupBy(*(F.col(f"`{n}`") for n in groups)).agg(*columns)
        for name, a in self.aggregates.items():
            if a.distinct:
                values, final = F.col(f"_{name}_set"), F.col(f"_{name}_final")
                value = F.coalesce(final, _of_set(a.kind, values, kinds[f"_{name}_set"], kinds[f"_{name}_final"]))
                merged = merged.withColumn(name, value)
                if mark is not None:
                    closed = F.unix_micros(WINDOW) + F.lit(self.join.join.spec.window.size) <= F.lit(mark)
                    merged = merged.withColumn(f"_{name}_final", F.when(closed, F.col(name)))
                    merged = merged.withColumn(f"_{name}_set", F.when(closed, F.slice(values, 1, 0)).otherwise(values))
            elif a.kind == "avg":
                merged = merged.withColumn(name, F.try_divide(f"_{name}_sum", f"_{name}_count"))
        return merged

    def _merge(self, at: str, pairs: DataFrame, epoch: int, mark: int | None) -> DataFrame:
        spark = pairs.sparkSession
        partial = self._partial(pairs)
        view = _opened(at)
        seen = None if view is None else view.transaction_version(_APP)
        if view is not None and seen is not None and seen >= epoch:
            return spark.createDataFrame(view.to_pyarrow_table(), self._view(partial).schema)
        if view is not None:
            before = spark.createDataFrame(view.to_pyarrow_table(columns=partial.columns), partial.schema)
            partial = before.unionAll(partial)
        merged = self._view(partial, mark)
        table = merged.toArrow()
        properties = CommitProperties({_APP: self._definition}, 0, app_transactions=[Transaction(_APP, epoch)])
        try:
            # Over the very version that was read: a process that was taken for dead must not put back an older view.
            if view is not None:
                write_deltalake(view, table, mode="overwrite", commit_properties=properties)
            else:
                Path(at).mkdir(parents=True, exist_ok=True)
                write_deltalake(at, table, mode="error", commit_properties=properties)
        except CommitFailedError as error:
            raise StateConflict.at(at, str(error)) from error
        except (DeltaError, OSError) as error:
            raise SinkUnwritable.at(at, error) from error
        return spark.createDataFrame(table, merged.schema)


def _of_set(kind: str, values: Column, of: DataType, to: DataType) -> Column:
    """The aggregate of distinct values; NULL of none, but 0 for their number."""
    if kind == "count":
        return F.size(values).cast(to)
    wide = to
    if kind == "avg" and isinstance(of, ArrayType) and isinstance(of.elementType, DecimalType):
        wide = DecimalType(min(38, of.elementType.precision + 10), of.elementType.scale)
    total = F.aggregate(values, F.lit(0).cast(wide), lambda a, x: (a + x.cast(wide)).cast(wide))
    if kind == "avg":
        total = F.try_divide(total, F.size(values)).cast(to)
    return F.when(F.size(values) > 0, total)


def _opened(at: str) -> DeltaTable | None:
    try:
        return DeltaTable(at)
    except TableNotFoundError:
        return None


def _bound(text: str, names: Names) -> str:
    return bind_text(text, 0, len(text), names).sql


def columns_of(texts: Sequence[str], names: Names) -> dict[Side, set[int]]:
    """Which columns of each input the expressions read."""
    out: dict[Side, set[int]] = {s: set() for s in SIDES}
    for text in texts:
        found = bind_text(text, 0, len(text), names).columns
        for side in SIDES:
            out[side] |= found[side]
    return out


def _group_names(by: Sequence[str], taken: Sequence[str]) -> list[str]:
    """'l.cell' is called cell in the view, unless that name is taken."""
    out: list[str] = []
    for text in by:
        short = text.rpartition(".")[2].strip("`")
        name = short if short.isidentifier() and short not in (*out, *taken) else text.replace(".", "_")
        if name in (*out, *taken):
            raise AmbiguousColumn.in_result(name, ("", ""))
        out.append(name)
    return out
