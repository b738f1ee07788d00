"""What can be wrong with bucketed tables."""

from __future__ import annotations

from evenkeel.errors.base import EvenkeelError


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

    @classmethod
    def unwritable(cls, path: str, error: OSError) -> EvenkeelError:
        return cls._make(
            f"The table '{path}' cannot be written: {error.strerror or error}. What was there before is unchanged.",
            "make the folder writable, or free space on its disk, and write again.",
        )

    @classmethod
    def not_seen(cls, path: str, url: str) -> EvenkeelError:
        return cls._make(
            f"Spark has written to '{url}', but nothing is there for pyarrow: nothing was committed to '{path}'.",
            "write the path without '%', '..' or links, and see that Spark and Python reach the same store.",
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
    def option(cls, name: str, value: str, wanted: str) -> EvenkeelError:
        return cls._make(f"The option '{name}' of the data source is {value!r}.", f"pass {wanted}.")

    @classmethod
    def options(cls, given: str) -> EvenkeelError:
        return cls._make(
            f"The data source 'evenkeel' was given {given}.",
            "set the options 'left' and 'right' to join two tables, or load(path) to read one.",
        )
