"""The folder of a bucketed table, on this machine or on any store that pyarrow or fsspec reaches.

    _evenkeel.json      the metadata; one atomic replacement of it is the commit
    _writing.json       a writer is at work
    data-<id>/_shard=0/ files of the first shards of all buckets; Spark can scan them as a bucketed table
    data-<id>/_shard=1/ files of the second shards, where there are any, and so on
    nulls-<id>/         rows with a NULL in their key
    _staging-<id>/      what a writer has not finished yet

Credentials are the store's own business: they come from the environment, and nothing of them is written down.
"""

from __future__ import annotations

import json
import os
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from evenkeel.bucketed.metadata import FILE, DataFile, TableMeta
from evenkeel.errors import BrokenTable, NotBucketed
from evenkeel.spark.session import local_path

MARKER = "_writing.json"
_BLOCK = 1 << 20
_HADOOP_CHUNK = 512
_SAME_STORE = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of a store, and pyarrow's."""


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """One process or thread at a time; the system lets go of a folder whose process dies."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Store:
    """A table's folder: `path` as the user wrote it, made absolute when it is local."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Store:
        text = os.fspath(path).rstrip("/")
        local = local_path(text)
        if "://" in local:
            return cls(text)
        there = Path(local)
        # Spark takes `..` back by name, the system by folder, which differs behind a link.
        return cls(str(there.resolve() if ".." in there.parts else there.absolute()))

    @cached_property
    def _resolved(self) -> tuple[pafs.FileSystem, str]:
        scheme, found, rest = self.path.partition("://")
        if not found:
            return pafs.LocalFileSystem(), self.path
        uri = f"{_SAME_STORE.get(scheme, scheme)}://{rest}"
        try:
            fs, root = pafs.FileSystem.from_uri(uri)
        except pa.ArrowInvalid:
            try:
                import fsspec
            except ModuleNotFoundError:
                raise NotBucketed.unknown_store(self.path, scheme) from None
            inner, root = fsspec.core.url_to_fs(uri)
            fs = pafs.PyFileSystem(pafs.FSSpecHandler(inner))
        return fs, root.rstrip("/")

    @property
    def fs(self) -> pafs.FileSystem:
        return self._resolved[0]

    @property
    def local(self) -> bool:
        return bool(self.fs.type_name == "local")

    def where(self, name: str) -> str:
        """The path that `fs` understands."""
        return f"{self._resolved[1]}/{name}" if name else self._resolved[1]

    def url(self, name: str) -> str:
        """The path that Spark understands; a local one says so, whatever Spark's default store is."""
        prefix = "" if "://" in self.path else "file://"
        return f"{prefix}{self.path}/{name}"

    def read_meta(self) -> TableMeta:
        text = self._text(FILE)
        if text is not None:
            return TableMeta.from_json(text, f"{self.path}/{FILE}")
        marker = self._text(MARKER)
        if marker is not None:
            raise NotBucketed.being_written(self.path, f"{self.path}/{MARKER}", _who(marker))
        if not self.exists(""):
            raise NotBucketed.missing(self.path)
        raise NotBucketed.foreign(self.path)

    def find_meta(self) -> TableMeta | None:
        text = self._text(FILE)
        return None if text is None else TableMeta.from_json(text, f"{self.path}/{FILE}")

    def commit(self, meta: TableMeta) -> None:
        """Replace the metadata in one step: readers see the table as it was or as it is, nothing between."""
        try:
            self._put(FILE, meta.to_json().encode())
        except OSError as error:
            raise NotBucketed.unwritable(self.path, error) from error

    def begin(self) -> str:
        """Announce a writer; refuse when another one is at work. Returns the marker's content."""
        mine = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "id": uuid4().hex})
        try:
            self.fs.create_dir(self.where(""), recursive=True)
            with _alone(self.where("")) if self.local else nullcontext():
                found = self._text(MARKER)
                if found is not None and not _is_dead(found):
                    raise NotBucketed.being_written(self.path, f"{self.path}/{MARKER}", _who(found))
                self._put(MARKER, mine.encode())
        except OSError as error:
            raise NotBucketed.unwritable(self.path, error) from error
        return mine

    def end(self, mine: str) -> None:
        if self._text(MARKER) == mine:
            self.fs.delete_file(self.where(MARKER))

    def sizes(self, folder: str) -> dict[str, int]:
        """Paths within a folder of the table, and their sizes."""
        selector = pafs.FileSelector(self.where(folder), allow_not_found=True, recursive=True)
        infos = self.fs.get_file_info(selector)
        start = len(self.where(folder)) + 1
        return {i.path[start:]: i.size for i in infos if i.type == pafs.FileType.File}

    def names(self) -> list[str]:
        infos = self.fs.get_file_info(pafs.FileSelector(self.where(""), allow_not_found=True))
        return [i.base_name for i in infos]

    def exists(self, name: str) -> bool:
        return bool(self.fs.get_file_info(self.where(name)).type != pafs.FileType.NotFound)

    def drop(self, folder: str) -> None:
        if self.exists(folder):
            self.fs.delete_dir(self.where(folder))

    def move(self, source: str, target: str) -> None:
        """Also when an earlier attempt got here first: then the source is gone and the target is there."""
        if not self.exists(source):
            if self.exists(target):
                return
            raise BrokenTable.file_missing(self.where(source))
        self.fs.move(self.where(source), self.where(target))

    def describe(self, name: str, bucket: int, shard: int, key: tuple[str, ...]) -> DataFile:
        """Count and sum up a finished file."""
        size = self.fs.get_file_info(self.where(name)).size
        with self.fs.open_input_file(self.where(name)) as source:
            footer = pq.read_metadata(source)
        chunks = (
            footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)
        )
        key_bytes = sum(c.total_compressed_size for c in chunks if c.path_in_schema in key)
        crc = self.crc(name) if self.local else None
        return DataFile(name, bucket, shard, footer.num_rows, size, key_bytes, crc)

    def sum_up(self, name: str) -> None:
        """Hadoop's checksum file beside a local file, as Spark's own writer leaves it: Spark compares as it reads."""
        out = [b"crc\0", _HADOOP_CHUNK.to_bytes(4, "big")]
        with open(self.where(name), "rb") as source:
            while chunk := source.read(_HADOOP_CHUNK):
                out.append(zlib.crc32(chunk).to_bytes(4, "big"))
        Path(self.where(sums_of(name))).write_bytes(b"".join(out))

    def crc(self, name: str) -> int:
        value = 0
        with self.fs.open_input_stream(self.where(name)) as source:
            while block := source.read(_BLOCK):
                value = zlib.crc32(block, value)
        return value

    def check(self, file: DataFile) -> None:
        """The file is there, whole and unchanged, or an error names it. A file is summed up once a process."""
        info = self.fs.get_file_info(self.where(file.path))
        shown = f"{self.path}/{file.path}"
        if info.type == pafs.FileType.NotFound:
            raise BrokenTable.file_missing(shown)
        if info.size != file.bytes:
            raise BrokenTable.file_size(shown, info.size, file.bytes)
        mark = (shown, info.size, info.mtime_ns, file.crc)
        if file.crc is None or mark in _CHECKED:
            return
        if self.crc(file.path) != file.crc:
            raise BrokenTable.file_damaged(shown, "its checksum does not match the table's metadata")
        _CHECKED.add(mark)

    def open(self, file: DataFile) -> pa.NativeFile:
        return self.fs.open_input_file(self.where(file.path))

    def _text(self, name: str) -> str | None:
        try:
            with self.fs.open_input_stream(self.where(name)) as source:
                return str(source.read().decode("utf-8", errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _put(self, name: str, data: bytes) -> None:
        """The whole file or nothing, also on a full disk."""
        if not self.local:  # object stores make an object visible as a whole
            with self.fs.open_output_stream(self.where(name)) as out:
                out.write(data)
            return
        part = Path(self.where(f"_{uuid4().hex}.tmp"))
        try:
            with open(part, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(part, self.where(name))
        finally:
            part.unlink(missing_ok=True)


_CHECKED: set[tuple[Any, ...]] = set()


def sums_of(name: str) -> str:
    """The name of a file's checksums, as Hadoop looks for them."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/.{file}.crc"


def _who(marker: str) -> str:
    try:
        found = json.loads(marker)
        return f"process {found['pid']} on {found['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _is_dead(marker: str) -> bool:
    """Whether the writer ran on this machine and runs no more."""
    try:
        found = json.loads(marker)
        if found["host"] != socket.gethostname():
            return False
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, PermissionError):
        return False
    return False
