"""The local joins. A new one is one file and one line here."""

from __future__ import annotations

from evenkeel.local.base import LocalJoin
from evenkeel.local.bins import Bins
from evenkeel.local.inequalities import Inequalities
from evenkeel.local.merge_on_hash import MergeOnHash
from evenkeel.local.merge_on_key import MergeOnKey
from evenkeel.local.merge_on_packed import MergeOnPacked
from evenkeel.local.nested_loop import NestedLoop

LOCAL_JOINS: tuple[LocalJoin, ...] = (
    MergeOnPacked(), MergeOnHash(), MergeOnKey(), Bins(), Inequalities(), NestedLoop(),
)  # fmt: skip


def local_named(name: str) -> LocalJoin:
    return next(j for j in LOCAL_JOINS if j.name == name)
