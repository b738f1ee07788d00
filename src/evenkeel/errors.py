"""Every error says what is wrong, then after an empty line how to mend it.

Errors are built by named constructors, so that one mistake has one message wherever it is made.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class EvenkeelError(Exception):
    """Base of everything this library raises on purpose."""

    @classmethod
    def _make(cls, problem: str, hint: str) -> EvenkeelError:
        return cls(f"{problem}\n\nHint: {hint}")


def _near(name: str, available: Iterable[str]) -> str:
    available = list(available)
    by_lower = {a.lower(): a for a in available}
    close = [by_lower[m] for m in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(f"'{c}'" for c in close) + "?"
    shown = ", ".join(f"'{a}'" for a in available[:12])
    return f"the columns are {shown}{', …' if len(available) > 12 else ''}."


class UnknownColumn(EvenkeelError):
    @classmethod
    def in_condition(cls, name: str, side: str, available: Iterable[str]) -> EvenkeelError:
        return cls._make(f"The {side} input has no column '{name}'.", _near(name, available))

    @classmethod
    def in_either(cls, name: str, left: Iterable[str], right: Iterable[str]) -> EvenkeelError:
        return cls._make(
            f"Neither input has a column '{name}'.", _near(name, dict.fromkeys([*left, *right]))
        )


    @classmethod
    def in_none(cls, name: str, available: Iterable[str]) -> EvenkeelError:
        return cls._make(f"No input has a column '{name}'.", _near(name, dict.fromkeys(available)))


class UnknownRelation(EvenkeelError):
    @classmethod
    def in_condition(cls, name: str, names: Iterable[str]) -> EvenkeelError:
        names = list(names)
        close = difflib.get_close_matches(name, names, n=1)
        guess = f"did you mean '{close[0]}'? " if close else ""
        return cls._make(
            f"The condition names '{name}', and there is no such input.", f"{guess}The inputs are {', '.join(names)}."
        )


class DuplicateInput(EvenkeelError):
    @classmethod
    def of(cls, first: str, second: str) -> EvenkeelError:
        return cls._make(
            f"The inputs '{first}' and '{second}' have one name: the case of names does not matter in SQL.",
            "give every input a name of its own; one DataFrame may stand under several names.",
        )


class DisconnectedInput(EvenkeelError):
    @classmethod
    def of(cls, names: list[str], text: str) -> EvenkeelError:
        shown = ", ".join(f"'{n}'" for n in names)
        return cls._make(
            f"No condition connects {shown} with the other inputs in '{text}'.",
            "add a condition such as \"R.id = S.id\", leave the input out, or pass cross=True if every combination "
            "of its rows with the others is wanted.",
        )


class WrongInputs(EvenkeelError):
    @classmethod
    def too_many(cls, count: int, most: int) -> EvenkeelError:
        return cls._make(
            f"{count} inputs, and one join takes at most {most}.",
            "join some of them first; the result of a join is a DataFrame like any other.",
        )

    @classmethod
    def too_few(cls, count: int) -> EvenkeelError:
        return cls._make(
            f"A multi-way join of {count} input{'' if count == 1 else 's'}.",
            'pass at least two, as ek.multi_join({"R": r, "S": s}, on="R.id = S.id").',
        )

    @classmethod
    def not_named(cls, value: object) -> EvenkeelError:
        return cls._make(
            f"The inputs are a {type(value).__name__}, not a dict of names and DataFrames.",
            'pass them as {"R": r, "S": s}; the condition speaks of them by these names.',
        )


class AmbiguousColumn(EvenkeelError):
    @classmethod
    def in_condition(cls, name: str) -> EvenkeelError:
        return cls._make(
            f"Both inputs have a column '{name}', so '{name}' alone could mean either.",
            f"write 'l.{name}' for the left input or 'r.{name}' for the right one.",
        )

    @classmethod
    def among(cls, name: str, inputs: list[str]) -> EvenkeelError:
        return cls._make(
            f"Several inputs have a column '{name}': {', '.join(inputs)}.",
            f"write '{inputs[0]}.{name}' for the one of {inputs[0]}.",
        )

    @classmethod
    def in_inputs(cls, name: str) -> EvenkeelError:
        return cls._make(
            f"The result would have two columns called '{name}'.",
            "rename a column or an input: a name that several inputs have is written input_column in the result.",
        )

    @classmethod
    def repeated(cls, name: str, side: str) -> EvenkeelError:
        return cls._make(
            f"The {side} input has more than one column called '{name}'.",
            "rename one of them, with df.toDF(...) or withColumnRenamed, before joining.",
        )

    @classmethod
    def in_result(cls, name: str, suffixes: tuple[str, str]) -> EvenkeelError:
        return cls._make(
            f"The result would have two columns called '{name}' with suffixes={suffixes!r}.",
            "choose other suffixes, such as suffixes=('', '_right').",
        )


class UnparsableCondition(EvenkeelError):
    @classmethod
    def at(cls, text: str, start: int, end: int, why: str) -> EvenkeelError:
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        mark = " " * (start - line_start) + "^" * max(1, min(end, line_start + len(line)) - start)
        return cls._make(
            f"The condition cannot be read: {why}\n\n    {line}\n    {mark}",
            "a condition is SQL over the inputs, such as \"l.user_id = r.id AND l.t < r.until\".",
        )

    @classmethod
    def empty(cls) -> EvenkeelError:
        return cls._make(
            "The join condition is empty.",
            "name a column that all inputs have, a list of such names, or a condition over them; for every "
            "combination of rows use how='cross', or cross=True of a multi-way join, with on=None.",
        )

    @classmethod
    def wrong_type(cls, on: object) -> EvenkeelError:
        return cls._make(
            f"`on` is a {type(on).__name__}: {on!r}.",
            "pass a column name, a list of column names, or a condition as text.",
        )

    @classmethod
    def refused_by_spark(cls, text: str, message: str) -> EvenkeelError:
        return cls._make(
            f"Spark does not accept the condition '{text}':\n\n    {message}",
            "try the same condition in left.alias('l').join(right.alias('r'), expr(...)) to narrow it down.",
        )


class OneSidedCondition(EvenkeelError):
    @classmethod
    def missing(cls, side: str, text: str) -> EvenkeelError:
        letter = side[0]
        return cls._make(
            f"The condition '{text}' names no column of the {side} input.",
            f"compare a column of each input, such as \"l.id = r.id\" ('{letter}.' is the {side} one); "
            "for every pair of rows use how='cross' with on=None.",
        )


class IncomparableTypes(EvenkeelError):
    @classmethod
    def in_key(cls, text: str, left: str, right: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' compares {left} with {right}.",
            "cast one side, for example \"cast(l.id AS string) = r.id\", so that both have one type.",
        )

    @classmethod
    def unorderable(cls, text: str, kind: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' compares values of type {kind}, which have no order.",
            "compare a field of it, or a rendering such as to_json(...), instead.",
        )


class UnusableBand(EvenkeelError):
    @classmethod
    def crossing(cls, text: str, low: float, high: float) -> EvenkeelError:
        return cls._make(
            f"No pair can satisfy '{text}': its lower bound ({low:g}) is above its upper bound ({high:g}).",
            "swap the bounds, or turn the signs around: BETWEEN takes the smaller bound first.",
        )

    @classmethod
    def mixed_interval(cls, text: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' uses an interval that mixes months with days or hours, and such intervals have no order: "
            "a month has 28 to 31 days.",
            "write it in one kind of unit, such as INTERVAL 30 DAYS or INTERVAL 1 MONTH, or as two conditions.",
        )

    @classmethod
    def null_bound(cls, text: str) -> EvenkeelError:
        return cls._make(
            f"A bound of '{text}' is NULL or not a number, so no pair can satisfy it.",
            "give the bound a value.",
        )


class TooManyPairs(EvenkeelError):
    @classmethod
    def of(cls, text: str, left: float, right: float, regions: int) -> EvenkeelError:
        return cls._make(
            f"Nothing in '{text}' narrows down which rows can match, so each of {left:,.0f} x {right:,.0f} = "
            f"{left * right:.2g} pairs would be checked, {left * right / regions:.2g} in each of {regions} regions.",
            "add an equality or a range to the condition (such as \"l.country = r.country\" or "
            "\"abs(length(l.name) - length(r.name)) < 3\"), filter the inputs first, or ask for "
            "scheme='one_bucket' with as many workers as it takes.",
        )


class UnknownOption(EvenkeelError):
    @classmethod
    def of(cls, what: str, value: object, allowed: Iterable[str]) -> EvenkeelError:
        allowed = list(allowed)
        close = difflib.get_close_matches(str(value), allowed, n=1)
        guess = f"did you mean '{close[0]}'? " if close else ""
        return cls._make(f"There is no {what} {value!r}.", f"{guess}Choose one of {', '.join(allowed)}.")


class InvalidWorkers(EvenkeelError):
    @classmethod
    def of(cls, value: object) -> EvenkeelError:
        return cls._make(
            f"workers={value!r}, but a join needs at least one worker.",
            "pass a positive integer, or None for Spark's own number of shuffle partitions.",
        )


class SchemeNotApplicable(EvenkeelError):
    @classmethod
    def needs_equality(cls, scheme: str, text: str) -> EvenkeelError:
        return cls._make(
            f"The scheme '{scheme}' routes rows by key, and '{text}' has no equality between the inputs.",
            "use scheme='auto', 'one_bucket' or 'broadcast', or add an equality such as \"l.site = r.site\".",
        )

    @classmethod
    def needs_range(cls, scheme: str, text: str) -> EvenkeelError:
        return cls._make(
            f"The scheme '{scheme}' routes rows by ranges of keys, and '{text}' compares neither numbers nor times "
            "of the two inputs.",
            "use scheme='auto' or 'one_bucket', or add a range such as \"abs(l.ts - r.ts) <= 5\".",
        )

    @classmethod
    def too_many_regions(cls, workers: int, most: int) -> EvenkeelError:
        return cls._make(
            f"workers={workers} asks for more regions than Spark can number ({most}).",
            "ask for fewer; a few times the number of cores is plenty.",
        )


class NotMeasurable(EvenkeelError):
    @classmethod
    def by_counting(cls, text: str) -> EvenkeelError:
        return cls._make(
            f"The output of '{text}' cannot be counted key by key.",
            "use measure(), which runs the join; counting covers equalities alone.",
        )


class UnreadableInput(EvenkeelError):
    @classmethod
    def not_a_frame(cls, side: str, value: object) -> EvenkeelError:
        return cls._make(
            f"The {side} input is a {type(value).__module__}.{type(value).__name__}, not a Spark DataFrame.",
            "make one with spark.createDataFrame(...) or spark.read.",
        )

    @classmethod
    def streaming(cls, side: str) -> EvenkeelError:
        return cls._make(
            f"The {side} input is a stream; this is a join of batch DataFrames.",
            "use ek.stream_join, or join inside foreachBatch, where every batch is a DataFrame of its own.",
        )

    @classmethod
    def at(cls, path: str, why: str) -> EvenkeelError:
        return cls._make(
            f"'{path}' cannot be read: {why}",
            "give a .parquet, .csv or .json file, or a folder of such files.",
        )

    @classmethod
    def target_exists(cls, path: str) -> EvenkeelError:
        return cls._make(f"'{path}' exists already.", "choose another --out, or add --overwrite.")


class NotBucketed(EvenkeelError):
    @classmethod
    def foreign(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"'{path}' is not a bucketed table: it has no _evenkeel.json.",
            "write one with ek.bucketed.write(df, path, key=...), or at the shell with 'evenkeel bucket'.",
        )

    @classmethod
    def missing(cls, path: str) -> EvenkeelError:
        return cls._make(f"There is no bucketed table at '{path}'.", "check the path; ek.bucketed.write makes a table.")

    @classmethod
    def being_written(cls, path: str, marker: str, who: str) -> EvenkeelError:
        return cls._make(
            f"The table '{path}' is being written by {who}.",
            f"wait for it to finish; if that writer has died, remove '{marker}'.",
        )

    @classmethod
    def exists(cls, path: str) -> EvenkeelError:
        return cls._make(f"'{path}' exists already.", "choose another path, or pass mode='overwrite' or mode='append'.")

    @classmethod
    def occupied(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"'{path}' is a folder with other things in it, which a bucketed table would mix with.",
            "choose an empty or a new folder.",
        )

    @classmethod
    def unknown_store(cls, path: str, scheme: str) -> EvenkeelError:
        return cls._make(
            f"'{path}' is on a store that pyarrow does not reach: '{scheme}'.",
            f"install fsspec and its package for '{scheme}'; Spark needs to reach that store as well.",
        )


class BrokenTable(EvenkeelError):
    @classmethod
    def metadata(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"The metadata '{path}' is damaged: its checksum does not match its content.",
            "restore the file from a copy, or write the table again.",
        )

    @classmethod
    def newer_format(cls, path: str, found: object, known: int) -> EvenkeelError:
        return cls._make(
            f"The metadata '{path}' is of format {found!r}; this version of evenkeel reads format {known}.",
            "upgrade evenkeel, or write the table again with this version.",
        )

    @classmethod
    def changed_since(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"The table '{path}' was written again after this DataFrame was made.", "make the DataFrame again."
        )

    @classmethod
    def file_missing(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"The file '{path}' of a bucketed table is missing.",
            "restore it, or write the table again; a DataFrame made before the table was last overwritten twice "
            "has to be made again.",
        )

    @classmethod
    def file_size(cls, path: str, found: int, expected: int) -> EvenkeelError:
        return cls._make(
            f"The file '{path}' has {found:,} bytes where the table's metadata says {expected:,}.",
            "restore the file from a copy, or write the table again.",
        )

    @classmethod
    def file_damaged(cls, path: str, why: str) -> EvenkeelError:
        return cls._make(
            f"The file '{path}' is damaged: {why}.", "restore the file from a copy, or write the table again."
        )


class IncompatibleTables(EvenkeelError):
    @classmethod
    def because(cls, left: str, right: str, why: str, hint: str) -> EvenkeelError:
        return cls._make(f"'{left}' and '{right}' cannot be joined by their buckets: {why}.", hint)

    @classmethod
    def other_table(cls, path: str, what: str, there: str, asked: str) -> EvenkeelError:
        return cls._make(
            f"The table at '{path}' has {what} {there}, and {what} {asked} was to be appended.",
            "append rows of the same columns and key, or use mode='overwrite'.",
        )

    @classmethod
    def changed(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"Another writer committed to '{path}' while this one was at work; nothing of this write is visible.",
            "write again.",
        )


class UnusableBuckets(EvenkeelError):
    @classmethod
    def size(cls, value: object) -> EvenkeelError:
        return cls._make(
            f"bucket_size={value!r} is not a size.",
            "pass bytes as a positive integer, or text such as '256MB' or '1GB'.",
        )

    @classmethod
    def count(cls, value: object, most: int) -> EvenkeelError:
        return cls._make(
            f"buckets={value!r} is not a number of buckets.", f"pass an integer from 1 to {most:,}, or leave it out."
        )

    @classmethod
    def key_type(cls, name: str, kind: str, why: str) -> EvenkeelError:
        return cls._make(
            f"The column '{name}' of type {kind} cannot be a bucketing key: {why}.",
            "bucket by a number, text, date or time; for a struct by its fields, in columns of their own.",
        )

    @classmethod
    def column_type(cls, name: str, kind: str) -> EvenkeelError:
        return cls._make(
            f"The column '{name}' of type {kind} cannot be kept in a bucketed table.",
            "drop it, or turn it into text, for example with to_json or cast(... AS string).",
        )

    @classmethod
    def no_key(cls, key: object) -> EvenkeelError:
        return cls._make(f"key={key!r} names no column.", "pass a column name or a list of column names.")

    @classmethod
    def cross(cls) -> EvenkeelError:
        return cls._make(
            "A cross join pairs all rows, whatever their buckets.", "use ek.join(left, right, None, how='cross')."
        )

    @classmethod
    def too_few(cls, count: int) -> EvenkeelError:
        return cls._make(f"join_many was given {count} table(s).", "pass the paths of two or more tables.")

    @classmethod
    def options(cls, given: str) -> EvenkeelError:
        return cls._make(
            f"The data source 'evenkeel' was given {given}.",
            "set the options 'left' and 'right' to join two tables, or load(path) to read one.",
        )


class StateUnwritable(EvenkeelError):
    @classmethod
    def at(cls, path: str, error: Exception) -> EvenkeelError:
        why = getattr(error, "strerror", None) or str(error)
        return cls._make(
            f"The state at '{path}' cannot be written: {why}. Nothing was committed, so nothing is lost.",
            "make the folder writable, or free space on its disk, and start the query again with the same "
            "checkpoint: it goes on where it stopped.",
        )


class StateUnreadable(EvenkeelError):
    @classmethod
    def at(cls, path: str, why: str) -> EvenkeelError:
        return cls._make(
            f"'{path}' is not the state of a stream join: {why}.",
            "give `state` a folder of its own, new or written by the same query.",
        )

    @classmethod
    def not_a_folder(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"The state '{path}' is no path of a file system.",
            "give a folder that the driver and all workers see under one path, such as a shared or mounted disk.",
        )


class StateConflict(EvenkeelError):
    @classmethod
    def at(cls, path: str, why: str) -> EvenkeelError:
        return cls._make(
            f"Somebody else wrote to the state at '{path}' while an epoch was running: {why}.",
            "let one query alone use a state folder; stop the other one and start this one again.",
        )


class StateMismatch(EvenkeelError):
    """The state on disk was written by a query that meant something else."""

    @classmethod
    def changed(cls, what: str, before: object, now: object) -> EvenkeelError:
        return cls._make(
            f"The state was written with another {what}: {before}, and the query now asks for {now}.",
            "go back to what it was, or start afresh with a new state folder and a new checkpoint.",
        )

    @classmethod
    def other_checkpoint(cls, state: str, checkpoint: str) -> EvenkeelError:
        return cls._make(
            f"The state '{state}' belongs to another checkpoint than '{checkpoint}': rows would be joined twice or "
            "not at all.",
            "use the state and the checkpoint that were started together, or new folders for both.",
        )

    @classmethod
    def behind(cls, state: str, committed: int, asked: int) -> EvenkeelError:
        return cls._make(
            f"The state '{state}' ends with epoch {committed}, but Spark goes on with epoch {asked}: the epochs in "
            "between are missing, as after restoring an older copy.",
            "restore state and checkpoint of the same moment, or start afresh with new folders for both.",
        )


class InvalidUnits(EvenkeelError):
    @classmethod
    def of(cls, value: object, least: int = 1, strategy: str = "") -> EvenkeelError:
        needs = f"the strategy '{strategy}' needs at least {least}" if strategy else "a join needs at least one unit"
        return cls._make(f"units={value!r}, but {needs}.", f"pass a whole number from {least} to 4096.")

    @classmethod
    def of_range(cls, value: str) -> EvenkeelError:
        return cls._make(
            f"units={value!r} is neither a number nor a range.",
            "write units=8, or units='4..32' to have their number follow the load, between 1 and 4096.",
        )


class InvalidDuration(EvenkeelError):
    @classmethod
    def of(cls, what: str, value: object) -> EvenkeelError:
        return cls._make(
            f"{what}={value!r} is no length of time.",
            "write a number and a unit, such as '10 minutes', '1 hour 30 minutes' or '500 milliseconds', "
            "or pass a datetime.timedelta.",
        )


class UnusableTime(EvenkeelError):
    @classmethod
    def missing(cls) -> EvenkeelError:
        return cls._make(
            "A window needs to know when a row happened, and no time column is given.",
            "name it: time='ts', or time=('ordered_at', 'seen_at') if the inputs call it differently.",
        )

    @classmethod
    def wrong_type(cls, name: str, side: str, kind: str) -> EvenkeelError:
        return cls._make(
            f"The column '{name}' of the {side} input is of type {kind}, which is no point in time.",
            "convert it before joining, for example with timestamp_seconds(...) or to_timestamp(...).",
        )


class InvalidSimulation(EvenkeelError):
    """Nothing to simulate."""

    @classmethod
    def of(cls, units: int, epochs: int, rows: int) -> EvenkeelError:
        return cls._make(
            f"A simulation of {units} units, {epochs} epochs and {rows} rows has nothing to show.",
            "units and epochs are at least 1, rows at least 2.",
        )

    @classmethod
    def distribution(cls, text: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' is no key distribution.",
            "write 'uniform', 'zipf:1.0', 'hot:0.3', 'flips:0.3:20', 'wandering:1.0' or 'sorted:0.5', "
            "and '@50000' behind it for the number of keys.",
        )


class StreamNotSupported(EvenkeelError):
    @classmethod
    def needs_window(cls, how: str) -> EvenkeelError:
        return cls._make(
            f"A '{how}' join of streams without a window would wait for a partner forever.",
            "give within='10 minutes' (or another length) and time=..., or use how='inner'.",
        )

    @classmethod
    def needs_equality(cls, strategy: str, text: str) -> EvenkeelError:
        return cls._make(
            f"The strategy '{strategy}' routes rows by key, and '{text}' has no equality between the inputs.",
            "use strategy='auto', 'random' or 'one_bucket', or add an equality such as \"l.site = r.site\".",
        )

    @classmethod
    def elastic(cls, strategy: str, elastic: Iterable[str]) -> EvenkeelError:
        return cls._make(
            f"The strategy '{strategy}' has a fixed number of units.",
            f"give one number of units, or use one of {', '.join(repr(s) for s in elastic)}.",
        )

    @classmethod
    def outer_condition(cls, how: str, text: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' can only be checked after the join, and a '{how}' join has to know before which rows matched.",
            "compare an expression of one input with one of the other, such as \"l.a < r.b + 5\", "
            "or use how='inner'.",
        )

    @classmethod
    def distinct_window(cls, names: Sequence[str]) -> EvenkeelError:
        return cls._make(
            f"Distinct values ({', '.join(names)}) would have to be remembered for ever, as no window ends.",
            "join with within=ek.tumbling('10 minutes') (or another length): values are then distinct in each window.",
        )

    @classmethod
    def column_type(cls, name: str, side: str, kind: str) -> EvenkeelError:
        return cls._make(
            f"The column '{name}' of the {side} input is of type {kind}, which the state cannot keep.",
            "drop it or convert it, for example with cast(... AS string), before joining.",
        )

    @classmethod
    def key_type(cls, text: str, kind: str) -> EvenkeelError:
        return cls._make(
            f"'{text}' compares values of type {kind}, which streams cannot be joined by.",
            "compare a field of it, or a rendering such as to_json(...), instead.",
        )

    @classmethod
    def not_streaming(cls, side: str) -> EvenkeelError:
        return cls._make(
            f"The {side} input is not a stream.",
            "read it with spark.readStream, or join batch DataFrames with ek.join.",
        )

    @classmethod
    def connect(cls) -> EvenkeelError:
        return cls._make(
            "Stream joins run beside the driver of a classic Spark session, and this one is a Spark Connect session.",
            "start the query in a job of its own on the cluster; ek.join and ek.plan do run over Spark Connect.",
        )

    @classmethod
    def option(cls, strategy: str) -> EvenkeelError:
        return cls._make(
            f"The strategy '{strategy}' has options that cannot be read.",
            "write them as numbers, such as 'contrand(d=4, e=4)' or 'fastjoin(theta=2.2)'.",
        )

    @classmethod
    def no_option(cls, strategy: str, name: str, allowed: Iterable[str]) -> EvenkeelError:
        allowed = list(allowed)
        hint = f"its options are {', '.join(allowed)}." if allowed else f"write strategy='{strategy}' alone."
        return cls._make(f"The strategy '{strategy}' has no option '{name}'.", hint)

    @classmethod
    def needs_band(cls, strategy: str, text: str) -> EvenkeelError:
        return cls._make(
            f"The strategy '{strategy}' routes rows by ranges, and '{text}' compares no numbers or times of the inputs "
            "by a band or an inequality.",
            "use strategy='auto', or add a condition such as \"abs(l.x - r.x) <= 5\".",
        )


class SinkUnwritable(EvenkeelError):
    @classmethod
    def at(cls, path: str, error: Exception) -> EvenkeelError:
        why = getattr(error, "strerror", None) or str(error)
        return cls._make(
            f"The results cannot be written to '{path}': {why}. The epoch was not committed.",
            "make the folder writable, or free space on its disk, and start the query again.",
        )
