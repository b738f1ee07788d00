"""Segments as memory-mapped Arrow files, shared by all workers of a machine, under a byte limit.

Invariant: a cached file is a whole copy of a segment, which never changes, so it cannot be stale. It appears by a
rename and is left out when it does not fit; losing it costs one read of the Parquet file.
Cost: a hit is a page of memory that all workers share; the limit counts bytes on disk, oldest use goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from evenkeel.state.segment import Segment, in_utc, read_segment

LIMIT = 8 << 30
HANDLES = 4096


class SegmentCache:
    def __init__(self, root: str, folder: str | None = None, limit: int = LIMIT) -> None:
        name = hashlib.sha256(os.path.abspath(root).encode()).hexdigest()[:16]
        self.root = root
        self.folder = Path(folder or Path(tempfile.gettempdir(), f"evenkeel-{os.getuid()}"), name)
        self.limit = limit
        self._open: OrderedDict[str, pa.Table] = OrderedDict()
        self._unchecked = 0

    def get(self, segment: Segment) -> pa.Table:
        """The segment's rows, from memory if any worker of this machine has seen it."""
        table = self._open.get(segment.path)
        if table is not None:
            self._open.move_to_end(segment.path)
            return table
        table = self._mapped(self._file(segment.path))
        if table is None:
            read = read_segment(self.root, segment)
            table = self._mapped(self._write(segment.path, read)) or read
        table = in_utc(table)
        self._keep(segment.path, table)
        return table

    def put(self, segment: Segment, rows: pa.Table) -> None:
        """Keep rows that were just written, so that nobody has to decode them."""
        self._write(segment.path, rows)

    def retain(self, live: set[str]) -> None:
        """Let go of segments that are no longer state: a file that is mapped keeps its place on the disk."""
        for path in [p for p in self._open if p not in live]:
            self.drop(path)

    def drop(self, path: str) -> None:
        self._open.pop(path, None)
        with contextlib.suppress(OSError):
            self._file(path).unlink()

    def _keep(self, path: str, table: pa.Table) -> None:
        self._open[path] = table
        while len(self._open) > HANDLES:
            self._open.popitem(last=False)

    def _file(self, path: str) -> Path:
        return self.folder / f"{path.rpartition('/')[2].removesuffix('.parquet')}.arrow"

    def _mapped(self, file: Path | None) -> pa.Table | None:
        if file is None:
            return None
        try:
            with pa.memory_map(str(file)) as source:
                table = pa.ipc.open_file(source).read_all()
            os.utime(file)
            return table
        except (OSError, pa.ArrowInvalid):
            return None

    def _write(self, path: str, rows: pa.Table) -> Path | None:
        file = self._file(path)
        part = file.with_suffix(f".{uuid.uuid4().hex}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows.combine_chunks(), max_chunksize=max(1, len(rows)))
            os.replace(part, file)
            self._unchecked += rows.nbytes
            if self._unchecked > self.limit // 32:
                self._trim()
                self._unchecked = 0
            return file
        except OSError:  # a full disk: the segment itself is safe, so nothing is lost but time
            with contextlib.suppress(OSError):
                part.unlink()
            return None

    def _trim(self) -> None:
        """Remove what was not used for longest, whichever state's it is, until all files fit the limit."""
        files = []
        for file in self.folder.parent.glob("*/*"):
            with contextlib.suppress(OSError):
                found = file.stat()
                files.append((found.st_mtime, found.st_size, file))
        total = sum(size for _, size, _ in files)
        for _, size, file in sorted(files):
            if total <= self.limit:
                break
            with contextlib.suppress(OSError):
                file.unlink()
                total -= size
