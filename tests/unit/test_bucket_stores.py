"""Implementation against implementation: a table on a store that only fsspec reaches reads as it does from a disk.

`fsspec` is optional and not installed with the project, so a stand-in with its interface takes its place. No Spark.
"""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenkeel import EvenkeelError
from evenkeel.bucketed.columns import result_columns
from evenkeel.bucketed.metadata import FILE, KeyColumn, TableMeta
from evenkeel.bucketed.pair import resolve
from evenkeel.bucketed.run import run_task
from evenkeel.bucketed.store import MARKER, Store
from evenkeel.testing import assert_same_rows

SCHEMA = '{"type": "struct", "fields": [{"name": "k", "type": "long"}, {"name": "n", "type": "long"}]}'
SECRET = "s3cr3t-from-the-environment"


class Memory:
    """Files in a dict, with as much of fsspec's interface as pyarrow asks for; it wants a secret to be opened."""

    protocol = "vault"
    files: ClassVar[dict[str, bytes]] = {}

    def __init__(self, secret):
        assert secret == SECRET

    def info(self, path):
        if path in self.files:
            return {"name": path, "type": "file", "size": len(self.files[path])}
        if self.isdir(path):
            return {"name": path, "type": "directory", "size": None}
        raise FileNotFoundError(path)

    def isdir(self, path):
        return any(f.startswith(f"{path}/") for f in self.files)

    def isfile(self, path):
        return path in self.files

    def exists(self, path):
        return self.isfile(path) or self.isdir(path)

    def find(self, path, maxdepth, withdirs, detail):
        inside = [f for f in self.files if f.startswith(f"{path}/")]
        if maxdepth is not None:
            inside = list(dict.fromkeys(f"{path}/{f[len(path) + 1 :].split('/')[0]}" for f in inside))
        return {f: self.info(f) for f in inside}

    def mkdir(self, path, create_parents):
        pass

    def rm(self, path, recursive=False):
        for f in [f for f in self.files if f == path or (recursive and f.startswith(f"{path}/"))]:
            del self.files[f]

    def mv(self, source, target, recursive):
        self.files[target] = self.files.pop(source)

    def open(self, path, mode):
        if mode == "rb":
            return io.BytesIO(self.files[path])
        files = self.files

        class Out(io.BytesIO):
            def close(self):
                files[path] = self.getvalue()
                super().close()

        return Out()


@pytest.fixture
def vault(monkeypatch):
    monkeypatch.setenv("VAULT_SECRET", SECRET)
    made = types.ModuleType("fsspec")
    made.core = types.SimpleNamespace(url_to_fs=lambda uri: (Memory(SECRET), uri.partition("://")[2]))
    monkeypatch.setitem(sys.modules, "fsspec", made)
    monkeypatch.setattr(Memory, "files", {})
    return "vault://lake"


def made(path, keys):
    """A table of two buckets, as a writer leaves it; buckets by parity will do where nobody hashes."""
    store = Store.at(path)
    mine = store.begin()
    files = []
    folder, staging = "data-0123456789ab/_shard=0", "_staging-0123456789ab"
    for name in (folder, staging):
        store.fs.create_dir(store.where(name), recursive=True)
    for bucket in range(2):
        name = f"{folder}/bucket-{bucket}.parquet"
        picked = sorted(k for k in keys if k % 2 == bucket)
        with store.fs.open_output_stream(store.where(f"{staging}/{bucket}")) as out:
            pq.write_table(pa.table({"k": picked, "n": range(len(picked))}), out, write_page_checksum=True)
        store.move(f"{staging}/{bucket}", name)
        files.append(store.describe(name, bucket, 0, ("k",)))
    meta = TableMeta((KeyColumn("k", "bigint"),), 2, 0, SCHEMA, tuple(files))
    store.commit(meta)
    store.end(mine)
    return store


def joined(left, right):
    stores = {"left": Store.at(left.path), "right": Store.at(right.path)}
    metas = {s: stores[s].read_meta() for s in stores}
    columns = result_columns(metas["left"], metas["right"], "full", ("", "_r"))
    schema = pa.schema([(c.name, pa.int64()) for c in columns])
    keys = {"left": ("k",), "right": ("k",)}
    tasks = resolve(metas["left"], metas["right"], "full").tasks
    return [tuple(r.values()) for t in tasks for b in run_task(t, stores, keys, columns, schema) for r in b.to_pylist()]


def test_a_store_that_fsspec_reaches(vault, tmp_path):
    there = [made(f"{vault}/{n}", keys) for n, keys in (("l", [1, 2, 2, 5, 8]), ("r", [2, 5, 6, 7]))]
    here = [made(tmp_path / n, keys) for n, keys in (("l", [1, 2, 2, 5, 8]), ("r", [2, 5, 6, 7]))]
    assert len(joined(*there)) == 7
    assert_same_rows(joined(*there), joined(*here))
    assert there[0].names() and not there[0].exists(MARKER) and not there[0].exists("_staging-0123456789ab")
    assert all(SECRET.encode() not in data for data in Memory.files.values()), "credentials are nobody's business"
    assert b"vault" not in Memory.files[f"lake/l/{FILE}"], "paths in the metadata are relative"
    name = there[0].read_meta().files[0].path
    Memory.files[f"lake/l/{name}"] = Memory.files[f"lake/l/{name}"][:-9]
    with pytest.raises(EvenkeelError, match=name):
        joined(*there)


def test_a_store_that_nothing_reaches(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(EvenkeelError, match="install fsspec"):
        Store.at("vault://lake/l").read_meta()


def test_one_writer_takes_the_place_of_a_dead_one(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = json.dumps({"host": socket.gethostname(), "pid": gone.pid, "id": "x"})
    for i in range(20):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / MARKER).write_text(dead)
        ready = threading.Barrier(4)

        def begin(store, ready=ready):
            ready.wait()
            try:
                return store.begin()
            except EvenkeelError:
                return None

        with ThreadPoolExecutor(4) as pool:
            let_in = [m for m in pool.map(begin, [Store.at(tmp_path / str(i)) for _ in range(4)]) if m is not None]
        assert len(let_in) == 1 and (tmp_path / str(i) / MARKER).read_text() == let_in[0]


def test_a_full_disk_leaves_no_marker_behind(tmp_path, monkeypatch):
    store = Store.at(tmp_path / "t")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(EvenkeelError, match="cannot be written: No space left"):
            store.begin()
    assert list((tmp_path / "t").iterdir()) == []
    store.end(store.begin())
