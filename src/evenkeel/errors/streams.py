"""What can be wrong with a stream join, its state and its sinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenkeel.errors.base import EvenkeelError

_SHARED = "give a folder that the driver and all workers see under one path, such as a shared or mounted disk."

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


class UnusableFolder(EvenkeelError):
    """A folder in which a state or results cannot be kept."""

    @classmethod
    def not_a_path(cls, path: object) -> EvenkeelError:
        return cls._make(f"`state` is {path!r}, not a path.", _SHARED)

    @classmethod
    def remote(cls, path: str) -> EvenkeelError:
        return cls._make(f"'{path}' is no path of a file system.", _SHARED)

    @classmethod
    def misread(cls, path: str, part: str) -> EvenkeelError:
        return cls._make(
            f"A Delta table cannot be kept in '{path}': '{part}' in its name is read as something else.",
            "choose a folder whose path has no '#', '?' or '\\', and no '%' before two digits.",
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
    def other_view(cls, path: str, seen: int | None, epoch: int) -> EvenkeelError:
        found = "there is no view" if seen is None else f"the view is of epoch {seen}"
        return cls._make(
            f"The state has come to epoch {epoch}, but at '{path}' {found}: what it lacks cannot be computed again.",
            "put the view back that belongs to the state, or begin again with a new state, checkpoint and view.",
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
    def window(cls, window: int) -> EvenkeelError:
        return cls._make(
            f"A window of {window} epochs keeps no row.", "pass how many epochs a row is kept, or leave it out."
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
            "compare an expression of one input with one of the other, such as \"l.a < r.b + 5\", or use how='inner'.",
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

    @classmethod
    def name_taken(cls, path: str, name: str) -> EvenkeelError:
        return cls._make(
            f"Folders of results in '{path}' are named by '{name}', and a column of the results is called the same.",
            "rename the column in the inputs, or use ek.sinks.delta.",
        )

    @classmethod
    def not_seen(cls, path: str) -> EvenkeelError:
        return cls._make(
            f"Spark has written results to '{path}', but none of its files is there. The epoch was not committed.",
            "put the table on a disk that the driver and all executors share, and start the query again.",
        )
