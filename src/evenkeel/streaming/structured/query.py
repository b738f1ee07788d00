"""`ek.stream_join`: a request, and the query that runs it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import time as clock
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from evenkeel.errors import InvalidUnits, StateMismatch, StreamNotSupported, UnreadableInput, UnusableFolder
from evenkeel.spark.session import local_path, over_connect
from evenkeel.state.segment import ROW
from evenkeel.state.table import StateTable, merged_schema
from evenkeel.streaming.choice import choose
from evenkeel.streaming.driver import MOVED, Driver, EpochReport
from evenkeel.streaming.migrations import Record
from evenkeel.streaming.opening import open_state
from evenkeel.streaming.strategies import Strategy
from evenkeel.streaming.strategies.base import Options, adapts
from evenkeel.streaming.structured.agg import Aggregate
from evenkeel.streaming.structured.aggregate import MARK, StreamAggregate, columns_of
from evenkeel.streaming.structured.executor import SparkExecutor
from evenkeel.streaming.structured.prepare import PreparedJoin, TimeColumns, prepare
from evenkeel.streaming.structured.sinks import DeltaSink, Sink, delta_folder
from evenkeel.streaming.windows import Tumbling, microseconds, window_of
from evenkeel.types import SIDES, parse_how

logger = logging.getLogger("evenkeel.streaming")
MOST_UNITS = 4096


def stream_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | None,
    how: str = "inner",
    *,
    within: str | dt.timedelta | Tumbling | None = None,
    time: TimeColumns = None,
    lateness: str | dt.timedelta = "0 seconds",
    strategy: str = "auto",
    units: int | str = 8,
    state: str,
) -> StreamJoin:
    """Join two streaming DataFrames; nothing runs until `start`.

    `on` and `how` are those of `ek.join`. `within` bounds the time between the rows of a pair ('10 minutes', both
    ends included), or puts them into the same window (`ek.tumbling('10 minutes')`); without it every pair of the
    whole history counts. `time` names the event time. Rows older than the watermark (the smaller of the inputs'
    newest times, less `lateness`) are counted and left out. `strategy` may carry options: 'fastjoin(theta=2)'.
    `units` is how many units share the work, or a range such as '4..32' within which their number follows the load.
    """
    for side, df in zip(SIDES, (left, right), strict=True):
        if not isinstance(df, DataFrame):
            raise UnreadableInput.not_a_frame(side, df)
        if not df.isStreaming:
            raise StreamNotSupported.not_streaming(side)
    if not isinstance(state, (str, Path)):
        raise UnusableFolder.not_a_path(state)
    folder = delta_folder(state)
    least, most = units_of(units)
    if over_connect(left.sparkSession):
        raise StreamNotSupported.connect()
    kind = parse_how(how)
    late = microseconds("lateness", lateness, zero=True)
    join = prepare(left, right, on, kind, window_of(within), late, time)
    chosen, options = choose(strategy, join.spec, least, most, join.few_keys)
    chosen.start(SIDES, least, options)

    def again(left: DataFrame, right: DataFrame) -> PreparedJoin:
        return prepare(left, right, on, kind, window_of(within), late, time)

    times = [] if time is None else [time, time] if isinstance(time, str) else list(time)
    asked = f"{least}..{most}" if most > least else least
    return StreamJoin(join, chosen, options, asked, folder, (left, right), times, again)


class StreamJoin:
    """A stream join that is not running yet."""

    def __init__(
        self,
        join: PreparedJoin,
        strategy: Strategy,
        options: Options,
        units: int | str,
        state: str,
        frames: tuple[DataFrame, DataFrame],
        times: list[str],
        again: Callable[[DataFrame, DataFrame], PreparedJoin],
    ) -> None:
        rows = bool(join.spec.preserved) and strategy.copies
        self.join = replace(join, spec=replace(join.spec, rows=rows))
        self.strategy, self.options, self.units, self.state = strategy, options, units, state
        self.on_step: Callable[[str, int], None] | None = None
        self.moved = MOVED
        self._frames, self._times, self._again = frames, times, again

    def start(self, sink: Sink, *, checkpoint: str, trigger: Mapping[str, Any] | None = None) -> StreamJoinQuery:
        """Run it. `trigger` has the arguments of Spark's `trigger`, such as {"availableNow": True}."""
        return self._start(sink, checkpoint, trigger)

    def aggregate(self, by: str | Sequence[str], **aggregates: Aggregate) -> StreamAggregate:
        """Groups and `ek.agg` aggregates over the results, kept up to date instead of the results themselves."""
        groups = [by] if isinstance(by, str) else list(by)
        names = self.join.bound.names
        read = columns_of([*groups, *(a.of for a in aggregates.values() if a.of is not None)], names)
        frames = []
        times: list[str | None] = [*self._times] if self._times else [None, None]
        for side, df, time in zip(SIDES, self._frames, times, strict=True):
            kept = read[side] | set(self.join.bound.condition.columns[side])
            kept |= {names.index(side, time)} if time is not None else set()
            kept = kept or {0}  # rows without columns could not be counted
            frames.append(df.select(*(f"`{names.of(side)[i]}`" for i in sorted(kept))))
        join = StreamJoin(
            self._again(*frames), self.strategy, self.options, self.units, self.state, (frames[0], frames[1]),
            self._times, self._again,
        )  # fmt: skip
        join.on_step = self.on_step
        return StreamAggregate(join, groups, aggregates)

    def _start(
        self,
        sink: Sink,
        checkpoint: str,
        trigger: Mapping[str, Any] | None,
        shape: Callable[[DataFrame], DataFrame] | None = None,
    ) -> StreamJoinQuery:
        state = self._open(checkpoint)
        spark = self.join.both.sparkSession
        tasks = int(str(spark.conf.get("spark.sql.shuffle.partitions", "200")))
        executor = SparkExecutor(self.join, self.state, tasks, shape)
        if isinstance(sink, DeltaSink):
            sink = sink.of(state.query)
        driver = Driver(
            state, self.join.spec, self.strategy, units_of(self.units)[0], executor, sink,
            options=self.options, moved=self.moved, on_step=self.on_step,
        )  # fmt: skip
        query = StreamJoinQuery(driver)
        writer = self.join.both.writeStream.foreachBatch(query.run).option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        query.query = writer.start()
        return query

    def _open(self, checkpoint: str) -> StateTable:
        """The state, if it and the checkpoint belong together. Nothing has been read by then."""
        folder = Path(local_path(checkpoint))
        mark = folder / MARK
        known = json.loads(mark.read_text())["query"] if mark.exists() else None
        schemas = list(self.join.schemas.values())
        if adapts(self.strategy) or self.join.spec.rows:
            schemas.append(pa.schema([pa.field(ROW, pa.int64())]))
        schema = merged_schema(schemas)
        mine = uuid.uuid4().hex
        state = open_state(
            self.state, self.join.spec, self.strategy.name, self.units, self.options, schema,
            known or mine,
        )  # fmt: skip
        begun = (folder / "commits").exists() and any((folder / "commits").iterdir())
        if known is None and (begun or state.snapshot.epoch >= 0):
            raise StateMismatch.other_checkpoint(self.state, checkpoint)
        if known is not None and (known != state.query or (begun and state.snapshot.epoch < 0)):
            raise StateMismatch.other_checkpoint(self.state, checkpoint)
        if known is None:
            if state.query != mine:
                state.hand_over(mine)
            mark.parent.mkdir(parents=True, exist_ok=True)
            part = mark.with_suffix(".part")
            part.write_text(json.dumps({"query": state.query, "state": self.state}))
            part.replace(mark)
        return state


class StreamJoinQuery:
    """A running stream join."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.query: StreamingQuery | None = None
        self.history: list[EpochReport] = []

    def run(self, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch; Spark calls it."""
        report = self.driver.run(batch_id, batch)
        if report is None:
            logger.info("epoch %d was committed before: skipped", batch_id)
            return
        self.history.append(replace(report, units=[]))
        logger.info("%s", self._line(report))
        if report.migration is not None:
            logger.info("epoch %d: %s", report.epoch, _moved(report.migration))
        if sum(report.late.values()):
            logger.warning("epoch %d: %s late rows were left out", report.epoch, report.late)

    def status(self) -> dict[str, Any]:
        """The last epoch and the state, as plain values."""
        snapshot, last = self.driver.state.snapshot, self.driver.last
        progress = snapshot.progress
        newest = [t for t in progress.get("newest", {}).values() if t is not None]
        mark = progress.get("watermark")
        out: dict[str, Any] = {
            "epoch": snapshot.epoch,
            "strategy": self.driver.table.strategy,
            "routing_version": self.driver.table.version,
            "units": self.driver.table.units,
            "migrating": self.driver.migration is not None,
            "migrations": len(self.driver.migrations),
            "watermark": _time(mark),
            "lag_seconds": (max(newest) - mark) / 1e6 if newest and mark is not None else None,
            "state_rows": snapshot.rows,
            "state_bytes": snapshot.size,
            "segments": len(snapshot.segments),
            "totals": dict(progress.get("totals", {})),
            "active": self.isActive,
        }
        if last is not None:
            heaviest = max(last.units, key=lambda u: sum(u.received.values()) + u.pairs)
            out |= {
                "rows": last.rows, "late": last.late, "pairs": last.pairs, "seconds": last.seconds,
                "rows_per_second": last.rows_per_second, "heaviest_unit": heaviest.unit,
            }  # fmt: skip
        return out

    def loads(self) -> list[dict[str, Any]]:
        """A record a unit, of the last epoch: rows stored, received and probing, pairs, seconds."""
        loads = self.driver.loads
        return [] if loads is None else [{"epoch": loads.epoch, **asdict(u), "work": u.work} for u in loads.units]

    def migrations(self) -> list[dict[str, Any]]:
        """A record a migration that came into force, the oldest of the last 64 first.

        epoch, units that rows left and came to, keys, rows and bytes moved, heaviest over mean load before and after
        (None until an epoch has been routed by the new table), milliseconds by which epochs became longer at most,
        epochs it took, version of the routing table, units, and why.
        """
        return [r.shown() for r in self.driver.migrations]

    @property
    def isActive(self) -> bool:
        return self.query is not None and bool(self.query.isActive)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """As Spark's: returns when the query ends, and raises what ended it."""
        assert self.query is not None
        found: bool | None = self.query.awaitTermination(timeout)
        return found

    def processAllAvailable(self) -> None:
        assert self.query is not None
        self.query.processAllAvailable()

    def watch(self, every: float = 1.0) -> None:
        """A line in the terminal that follows the query until it ends."""
        while self.isActive:
            self._show()
            clock.sleep(every)
        self._show()
        print(file=sys.stderr)

    def _show(self) -> None:
        if self.driver.last is not None:
            print(f"\r{self._line(self.driver.last)}\x1b[K", end="", file=sys.stderr, flush=True)

    def _line(self, report: EpochReport) -> str:
        heaviest = max(report.units, key=lambda u: sum(u.received.values()) + u.pairs)
        share = (sum(heaviest.received.values()) + heaviest.pairs) / max(1, report.sent + report.pairs)
        lag = self.status()["lag_seconds"]
        moved = max(self.driver.migrations, key=lambda r: r.epoch, default=None)
        routing = f", routing {report.version}"
        if moved is not None:
            routing += f" (since epoch {moved.epoch}: {moved.rows:,} rows moved)"
        return (
            f"epoch {report.epoch}: {report.rows_per_second:,.0f} rows/s, {report.seconds:.2f} s, "
            f"{report.pairs:,} pairs, state {report.state_rows:,} rows {report.state_bytes / 1e6:,.1f} MB, "
            f"heaviest unit {heaviest.unit} ({share:.0%})" + (f", lag {lag:.1f} s" if lag is not None else "") + routing
        )


def _time(micros: int | None) -> str | None:
    if micros is None:
        return None
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)).isoformat()


def _moved(r: Record) -> str:
    keys = f"{r.keys} keys, " if r.keys is not None else ""
    return (
        f"routing table {r.version} is in force, {r.units} units: {keys}{r.rows:,} rows ({r.size / 1e6:.1f} MB) from "
        f"{list(r.sources)} to {list(r.targets)} {r.epoch - r.asked} epochs, {r.seconds * 1000:.0f} ms; {r.reason}"
    )


def units_of(units: int | str) -> tuple[int, int]:
    """8 as (8, 8), '4..32' as (4, 32)."""
    if isinstance(units, str):
        low, dots, high = (w.strip() for w in units.partition(".."))
        if not dots or not low.isdigit() or not high.isdigit() or not 1 <= int(low) <= int(high) <= MOST_UNITS:
            raise InvalidUnits.of_range(units)
        return int(low), int(high)
    if isinstance(units, bool) or not isinstance(units, int) or not 1 <= units <= MOST_UNITS:
        raise InvalidUnits.of(units)
    return units, units
