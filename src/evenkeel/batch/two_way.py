"""`ek.plan` and `ek.join`: bind the request, collect statistics, optimize, and run it on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from html import escape

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from evenkeel.batch.execute import execute
from evenkeel.batch.measure import measure_by_counting, measure_by_running
from evenkeel.errors import UnreadableInput
from evenkeel.local import Bins
from evenkeel.plan import Facts, TwoWay, explain, hot_keys, optimize
from evenkeel.plan.rules import BY_RANGE, permit
from evenkeel.report import LoadReport
from evenkeel.schemes import Layout
from evenkeel.schemes.equi_weight import PREDICT_SAMPLE
from evenkeel.spark.arrow_join import fits_arrow
from evenkeel.spark.binding import BoundJoin, bind, guarded
from evenkeel.spark.inputs import cores, explain_text, keeps_order, row_bytes, size_in_bytes
from evenkeel.spark.statistics import collect, collect_ranges, collect_sizes, key_names
from evenkeel.spark.stream_sample import stream_sample
from evenkeel.types import SIDES, How, SchemeName, Side, parse_how, parse_scheme, parse_suffixes, parse_workers

On = str | Sequence[str] | None


def plan(
    left: DataFrame,
    right: DataFrame,
    on: On,
    how: str = "inner",
    *,
    scheme: str = "auto",
    workers: int | None = None,
    suffixes: tuple[str, str] = ("", "_r"),
) -> JoinPlan:
    """Plan a join that no skew can slow down, without running it.

    Reads the key columns of both inputs for statistics (a sample of large inputs), unless the scheme is `hash` or
    `broadcast`. See `join` for the parameters.
    """
    for side, df in zip(SIDES, (left, right), strict=True):
        if not isinstance(df, DataFrame):
            raise UnreadableInput.not_a_frame(side, df)
        if df.isStreaming:
            raise UnreadableInput.streaming(side)
    joined, asked = parse_how(how), parse_scheme(scheme)
    count = None if workers is None else parse_workers(workers)
    request = guarded(bind(left, right, on, joined, parse_suffixes(suffixes)))
    drawn, explained = draft(request, joined, asked, count or default_workers(left.sparkSession))
    made = JoinPlan(request, drawn, explained)
    made.tree  # noqa: B018  a plan that cannot be made fails here, not when it is first looked at
    return made


def draft(request: BoundJoin, how: How, scheme: SchemeName, workers: int) -> tuple[TwoWay, dict[Side, str]]:
    """A plan with all that is known without reading the inputs, and how Spark explains those."""
    explained: dict[Side, str] = {s: explain_text(request.side(s)) for s in SIDES}
    facts = Facts(
        {s: row_bytes(request.side(s).schema) for s in SIDES},
        {s: keeps_order(explained[s]) for s in SIDES},
        {s: size_in_bytes(explained[s]) for s in SIDES},
        all(fits_arrow(request.side(s).schema) for s in SIDES),
        broadcast_limit(request.left.sparkSession),
        cores(request.left.sparkSession),
        coalesces(request.left.sparkSession),
        request.key_bits,
    )
    return permit(TwoWay(request.condition, how, workers, scheme, facts)), explained


def join(
    left: DataFrame,
    right: DataFrame,
    on: On,
    how: str = "inner",
    *,
    scheme: str = "auto",
    workers: int | None = None,
    suffixes: tuple[str, str] = ("", "_r"),
) -> DataFrame:
    """Join two DataFrames; the result is a plain DataFrame, as lazy as any.

    on        a column name, a list of names, or a condition over l and r: "l.id = r.user AND l.t < r.until"
    how       inner, left, right, full, left_semi, left_anti, cross, or a synonym that Spark knows
    scheme    auto, hash, broadcast, heavy_light, one_bucket, m_bucket or equi_weight
    workers   how many regions to balance over; Spark's number of shuffle partitions if not given
    suffixes  for column names that both inputs have
    """
    return plan(left, right, on, how, scheme=scheme, workers=workers, suffixes=suffixes).execute()


class JoinPlan:
    """A planned join: look at it with explain(), run it with execute(), weigh it with measure()."""

    def __init__(
        self, request: BoundJoin, draft: TwoWay, explained: dict[Side, str], weighed: TwoWay | None = None
    ) -> None:
        self._request = request
        self._draft = draft
        self._explained = explained
        if weighed is not None:  # statistics came from elsewhere
            self.__dict__["_weighed"] = weighed

    @cached_property
    def tree(self) -> TwoWay:
        """The plan as a frozen value."""
        return self._weighed if self._draft.needs_statistics else optimize(self._draft)

    @cached_property
    def _weighed(self) -> TwoWay:
        """The plan with statistics, collected now if the scheme did not need them."""
        draft, condition = self._draft, self._draft.condition
        if condition.spans or (draft.requested in BY_RANGE and condition.equi):
            stats, ranges = collect_ranges(self._request, self._explained, draft.facts.row_bytes)
            if not ranges.exact and condition.spans and condition.spans[0].bounded:
                stable = draft.facts.stable_order
                ranges = stream_sample(self._request, stats, ranges, draft.workers, stable, PREDICT_SAMPLE)
            return optimize(replace(draft, stats=stats, ranges=ranges))
        if condition.equi:
            return optimize(replace(draft, stats=collect(self._request, self._explained, draft.facts.row_bytes)))
        return optimize(replace(draft, stats=collect_sizes(self._request)))

    @property
    def scheme(self) -> str:
        """The scheme that was chosen; a join left to Spark is `hash`, its own way."""
        assert self.tree.chosen is not None
        return "hash" if self.native else self.tree.chosen.scheme

    @property
    def native(self) -> bool:
        """Whether the join is left to Spark untouched."""
        return self.tree.native

    @property
    def layout(self) -> Layout:
        assert self.tree.chosen is not None
        return self.tree.chosen.layout

    @property
    def predicted(self) -> LoadReport:
        """The load of every region, as the statistics foretell it."""
        chosen = self._weighed.chosen
        assert chosen is not None and chosen.layout.predicted is not None
        load, local = chosen.layout.predicted, self.tree.local
        if isinstance(local, Bins) and local.before:
            return replace(load, rows_in=load.rows_in + np.asarray(local.extra))
        return load

    @property
    def replication(self) -> float:
        """Rows shipped / rows read, as predicted."""
        return self.predicted.replication

    def explain(self) -> str:
        """What the join is, what is known of its inputs, what was considered, what was chosen and why.

        Hot keys are named, which takes one more look at the key columns the first time.
        """
        return explain(self._named)

    @cached_property
    def _named(self) -> TwoWay:
        """The plan with names for the hot keys, found on the side that has most of each."""
        stats = self._weighed.stats
        assert stats is not None
        hot = hot_keys(stats, self._weighed.workers)
        mostly: dict[Side, list[int]] = {
            "left": [k.hash for k in hot if k.left >= k.right],
            "right": [k.hash for k in hot if k.left < k.right],
        }
        with ThreadPoolExecutor(2) as pool:
            left, right = pool.map(lambda s: key_names(self._request, s, mostly[s]), SIDES)
        return replace(self._weighed, stats=replace(stats, labels=left | right))

    def execute(self) -> DataFrame:
        """The result, lazily."""
        return self._result

    @cached_property
    def _result(self) -> DataFrame:
        """Built once: Spark takes a fifth of a second to analyse a routed join."""
        return execute(self._request, self.tree)

    def measure(self, *, run: bool = True) -> LoadReport:
        """The load of every region as it is.

        Runs the join, counts rows in and out of every region, and times its task where Spark's UI is on. With
        run=False pairs are counted key by key without forming them: exact, and quick where the output is huge.
        """
        by = measure_by_running if run else measure_by_counting
        return by(self._request, self.tree)

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.explain())}</pre>{self.predicted._repr_html_()}"


def default_workers(spark: SparkSession) -> int:
    return int(_conf(spark, "spark.sql.shuffle.partitions", "200"))


def broadcast_limit(spark: SparkSession) -> float:
    """Bytes up to which Spark broadcasts by itself; below 0 it never does."""
    return _bytes(_conf(spark, "spark.sql.autoBroadcastJoinThreshold", "10485760"))


def coalesces(spark: SparkSession) -> bool:
    """Whether adaptive execution may put small partitions together."""
    wanted = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
    return all(_conf(spark, key, "true").lower() == "true" for key in wanted)


def _conf(spark: SparkSession, key: str, default: str) -> str:
    return str(spark.conf.get(key, default))


def _bytes(text: str) -> float:
    """Spark writes sizes as '10485760', '10485760b' or '10MB'."""
    units = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
    digits = text.lower().rstrip("bkmgtie")
    unit = text.lower()[len(digits) :][:1] or "b"
    try:
        return float(digits) * units[unit]
    except (ValueError, KeyError):
        return 10.0 * 2**20
