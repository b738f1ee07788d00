"""The units of an epoch as Spark tasks: one exchange by unit, one pass in Arrow, reports in files beside the state.

    tagged rows -- placements, by Spark's own expressions -- repartitionById(unit) -- units in Arrow -- results

One Spark job an epoch, started by whoever consumes the results. A task writes its segments and, when its results
have all been taken, a report; the driver reads one report a unit. A task that runs twice leaves a second report of
the same content and segments that nobody refers to.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from evenkeel.errors import StateUnwritable
from evenkeel.spark.workers import in_workers
from evenkeel.state import Segment, SegmentCache
from evenkeel.state.migration import Stage
from evenkeel.state.segment import ROW, in_utc
from evenkeel.streaming.driver import EpochPlan
from evenkeel.streaming.moving import Moving, cut
from evenkeel.streaming.placing import placed_by_sql
from evenkeel.streaming.spec import INPUTS, JoinSpec
from evenkeel.streaming.strategies.base import FLAGS
from evenkeel.streaming.structured import due
from evenkeel.streaming.structured.lookup import with_exceptions
from evenkeel.streaming.structured.prepare import PreparedJoin
from evenkeel.streaming.unit import UnitEpoch, UnitReport, UnitTask
from evenkeel.types import SIDES, Side

REPORTS = "_evenkeel"
_CACHES: dict[str, SegmentCache] = {}


class SparkExecutor:
    def __init__(
        self, join: PreparedJoin, root: str, tasks: int, shape: Callable[[DataFrame], DataFrame] | None = None
    ) -> None:
        self.join, self.root, self.tasks = join, root, tasks
        self.shape = shape or join.finish
        self._folder: Path | None = None
        self._results: DataFrame | None = None

    @property
    def cache_folder(self) -> Path:
        """Where this machine keeps its copies of segments."""
        return _cache(self.root).folder

    def start(self, plan: EpochPlan, batch: DataFrame) -> DataFrame:
        self._folder = Path(self.root, REPORTS, f"{plan.epoch:010d}-{uuid.uuid4().hex[:12]}")
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise StateUnwritable.at(str(self._folder), error) from error
        parts = min(self.tasks, plan.table.units)
        spec = self.join.spec
        placed = batch.withColumn("_place", _placement(self.join, plan))
        if plan.rows:
            placed = placed.withColumn(ROW, F.expr(_by_side(_content(self.join, plan))))
        moved = _with_marks(placed, parts).repartitionById(parts, F.expr(f"pmod(shiftright(_place, 3), {parts})"))
        names = self.join.result.fieldNames()
        rows = self.join.arrow.append(pa.field(ROW, pa.int64())) if plan.rows else self.join.arrow
        run = _units(spec, plan.tasks, parts, str(self._folder), _payload(self.join, plan.rows), names)
        self._results = in_workers(moved, run, self.join.result)
        root, folder = self.root, str(self._folder)
        settled = due.settled(
            batch.sparkSession, plan, spec, rows, self.join.result, parts, lambda: _cache(root),
            lambda part, shown: _write(folder, f"due-{part:05d}", {"part": part, "emitted": shown}),
        )  # fmt: skip
        if settled is not None:
            self._results = self._results.unionAll(settled)
        return self.shape(self._results)

    def finish(self, plan: EpochPlan) -> list[UnitReport]:
        reports = self._reports()
        if len(reports) < len(plan.tasks):  # the sink did not ask for all results
            assert self._results is not None
            self._results.write.format("noop").mode("overwrite").save()
            reports = self._reports()
        missing = [t.unit for t in plan.tasks if t.unit not in reports]
        assert not missing, f"units {missing} did not report"
        for part, rows in self._shown().items():
            reports[part].emitted += rows
        return [reports[t.unit] for t in plan.tasks]

    def move(self, plan: EpochPlan, shares: Sequence[Moving]) -> list[Stage]:
        if not shares:
            return []
        assert self._results is not None
        spec, root, epoch = self.join.spec, self.root, plan.epoch

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                done = [cut(shares[i], spec, _cache(root), root, epoch).to_json() for i in batch["id"].to_pylist()]
                yield pa.RecordBatch.from_pydict({"stage": [json.dumps(stage) for stage in done]})

        jobs = self._results.sparkSession.range(0, len(shares), 1, min(self.tasks, len(shares)))
        done = in_workers(jobs, run, "stage string").collect()
        return [Stage.from_json(json.loads(row["stage"])) for row in done]

    def forget(self, epoch: int, removed: Sequence[Segment]) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder.parent, ignore_errors=True)
        cache = _cache(self.root)
        for segment in removed:
            cache.drop(segment.path)

    def _reports(self) -> dict[int, UnitReport]:
        assert self._folder is not None
        out: dict[int, UnitReport] = {}
        for file in sorted(self._folder.glob("unit-*.json")):
            report = UnitReport.from_json(json.loads(file.read_text()))
            out.setdefault(report.unit, report)
        return out

    def _shown(self) -> dict[int, int]:
        """By task, how many rows that were due it showed."""
        assert self._folder is not None
        read = [json.loads(f.read_text()) for f in self._folder.glob("due-*.json")]
        return {doc["part"]: doc["emitted"] for doc in read}


def _payload(join: PreparedJoin, rows: bool) -> dict[str, list[str]]:
    return {s: [*join.engine, *([ROW] if rows else []), *join.stored[s].values()] for s in SIDES}


def _content(join: PreparedJoin, plan: EpochPlan) -> dict[Side, str]:
    """The hash of a row's content and epoch."""
    out: dict[Side, str] = {}
    for side in SIDES:
        columns = ", ".join(f"`{c}`" for c in join.hashed[side])
        # As text the epoch is no part of the generated code, which is compiled once instead of every epoch.
        out[side] = f"xxhash64('{plan.epoch}'{', ' + columns if columns else ''})"
    return out


def _by_side(of: Mapping[Side, str]) -> str:
    return f"CASE WHEN _side = 0 THEN {of['left']} ELSE {of['right']} END"


def _placement(join: PreparedJoin, plan: EpochPlan) -> Column:
    """Each row's placements as `_place`, one row a placement."""
    arrays: dict[Side, str] = {}
    for side, row in _content(join, plan).items():
        key, position = placed_by_sql(row, join.spec)
        arrays[side] = plan.table.place_sql(side, key, row, position)
        special = plan.table.exceptions.get(side, {})
        if special:
            arrays[side] = with_exceptions(special, key, row, arrays[side])
    if not plan.table.replicates:
        return F.expr(_by_side({s: f"({a})[0]" for s, a in arrays.items()}))
    return F.explode(F.expr(_by_side(arrays)))


def _with_marks(placed: DataFrame, parts: int) -> DataFrame:
    """One more row for every part, placed in a unit below 0: a part without rows knows which units it has too.

    Spark's own number of a partition tells it only as long as nobody puts other partitions in front of these.
    """
    marks = placed.sparkSession.range(0, parts, 1, 1)
    marks = marks.selectExpr("cast(0 AS tinyint) AS _side", f"cast(-(id + 1) * {FLAGS} AS int) AS _place")
    return placed.unionByName(marks, allowMissingColumns=True)


def _cache(root: str) -> SegmentCache:
    """One cache a process: workers live on from epoch to epoch."""
    if root not in _CACHES:
        _CACHES[root] = SegmentCache(root)
    return _CACHES[root]


Arrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _units(
    spec: JoinSpec,
    tasks: Sequence[UnitTask],
    parts: int,
    folder: str,
    payload: dict[str, list[str]],
    names: list[str],
) -> Arrow:
    """All units of one partition, one after the other."""
    root = tasks[0].root

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache = _cache(root)
        cache.retain({s.path for t in tasks for held in t.segments.values() for s in held})
        table = in_utc(pa.Table.from_batches(list(batches)))
        part = pc.min(table["_place"]).as_py() // FLAGS % parts
        here = [t for t in tasks if t.unit % parts == part]
        shown = [c for i in INPUTS for c in spec.columns[i]][: len(names)]
        result = pa.schema([table.schema.field(c).with_name(n) for c, n in zip(shown, names, strict=True)])
        for task, rows in zip(here, _split(table, here, payload), strict=True):
            unit = UnitEpoch(task, spec, cache)
            yield from unit.results(rows, result)
            _write(folder, f"unit-{task.unit:05d}", unit.report.to_json())

    return run


def _split(
    table: pa.Table, tasks: Sequence[UnitTask], payload: dict[str, list[str]]
) -> Iterator[dict[str, tuple[pa.Table, Any]]]:
    """The rows of each unit, by input."""
    place, side = (np.asarray(table[c]) for c in ("_place", "_side"))
    group = (place // FLAGS) * 2 + side
    order = np.argsort(group, kind="stable")
    grouped = group[order]
    for task in tasks:
        rows: dict[str, tuple[pa.Table, Any]] = {}
        for i, input in enumerate(INPUTS):
            a, b = np.searchsorted(grouped, [task.unit * 2 + i, task.unit * 2 + i + 1])
            at = order[a:b]
            rows[input] = table.select(payload[input]).take(pa.array(at)), place[at].astype(np.int64)
        yield rows


def _write(folder: str, name: str, report: dict[str, Any]) -> None:
    part = Path(folder, f".{uuid.uuid4().hex}")
    try:
        part.write_text(json.dumps(report))
        os.replace(part, Path(folder, f"{name}-{part.name[1:]}.json"))
    except OSError as error:
        raise StateUnwritable.at(folder, error) from error
