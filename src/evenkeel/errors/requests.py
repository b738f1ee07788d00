"""What can be wrong with a join that is asked for: inputs, columns, conditions, schemes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from evenkeel.errors.base import EvenkeelError


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
    def none_asked(cls, available: Iterable[str]) -> EvenkeelError:
        return cls._make("No column is asked for.", f"name some of {', '.join(available)}, or leave `columns` out.")

    @classmethod
    def in_condition(cls, name: str, side: str, available: Iterable[str]) -> EvenkeelError:
        return cls._make(f"The {side} input has no column '{name}'.", _near(name, available))

    @classmethod
    def in_either(cls, name: str, left: Iterable[str], right: Iterable[str]) -> EvenkeelError:
        return cls._make(f"Neither input has a column '{name}'.", _near(name, dict.fromkeys([*left, *right])))

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
            'add a condition such as "R.id = S.id", leave the input out, or pass cross=True if every combination '
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
    def asked_twice(cls, name: str) -> EvenkeelError:
        return cls._make(f"The column '{name}' is asked for twice.", "name every column once.")

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
            'a condition is SQL over the inputs, such as "l.user_id = r.id AND l.t < r.until".',
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
            'cast one side, for example "cast(l.id AS string) = r.id", so that both have one type.',
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
            'add an equality or a range to the condition (such as "l.country = r.country" or '
            '"abs(length(l.name) - length(r.name)) < 3"), filter the inputs first, or ask for '
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
        return cls._make(f"'{path}' exists already.", "choose another place, or add --overwrite.")

    @classmethod
    def target_is_read(cls, path: str, source: str) -> EvenkeelError:
        return cls._make(
            f"The result cannot replace '{path}': the input '{source}' is read from there.",
            "write it to another folder, and move that when it is done.",
        )


class ArchiveUnwritable(EvenkeelError):
    @classmethod
    def at(cls, path: str, why: str) -> EvenkeelError:
        return cls._make(
            f"The archive of classes '{path}' was not written: {why}",
            "give a file in a folder that can be written, with 200 MB to spare, and use Java 17 or newer.",
        )
