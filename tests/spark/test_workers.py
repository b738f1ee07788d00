"""What runs in Spark's Python workers wastes no time there."""

from __future__ import annotations

import os
import socket
import sys

import pyarrow as pa
import pytest

from evenkeel.spark.workers import acknowledge, in_workers


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to acknowledge")
def test_what_has_come_is_acknowledged():
    option = socket.IPPROTO_TCP, socket.TCP_QUICKACK
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        here, there = socket.socketpair()
        with other, here, there, open(os.devnull):
            one.setsockopt(*option, 0)
            before = os.listdir("/proc/self/fd")
            acknowledge()
            assert one.getsockopt(*option) == 1
            assert os.listdir("/proc/self/fd") == before
            one.sendall(b"open")
            here.sendall(b"as it was")
            assert (other.recv(9), there.recv(9)) == (b"open", b"as it was")


def test_connections_of_others_stay_blocking():
    here, there = socket.socketpair()
    with here, there:
        socket.setdefaulttimeout(5)
        try:
            acknowledge()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(here.fileno()) and os.get_blocking(there.fileno())


def test_a_worker_looks_for_no_garbage_among_its_imports(spark):
    def state(batches):
        import gc

        for batch in batches:
            yield pa.RecordBatch.from_pydict({
                "id": batch["id"].to_pylist(), "pid": [os.getpid()], "frozen": [gc.get_freeze_count()],
            })  # fmt: skip

    jobs = spark.range(0, 8, 1, 8)
    found = [r for _ in range(2) for r in in_workers(jobs, state, "id long, pid long, frozen long").collect()]
    assert sorted(r["id"] for r in found) == sorted([*range(8)] * 2)
    by_worker = {pid: [r["frozen"] for r in found if r["pid"] == pid] for pid in {r["pid"] for r in found}}
    assert any(len(counts) > 1 for counts in by_worker.values()), "no worker had a second task"
    assert all(min(counts[1:]) > 10_000 for counts in by_worker.values() if len(counts) > 1)
