"""The state of a stream join, found or made; refused before anything is read if it was written for another join."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evenkeel.errors import StateMismatch
from evenkeel.state import StateTable
from evenkeel.streaming.spec import JoinSpec, check_same
from evenkeel.streaming.strategies.base import Options


def open_state(
    root: str, spec: JoinSpec, strategy: str, units: int | str, options: Options, schema: Any, query: str
) -> StateTable:
    """The state at `root`, made if there is none, refused if it was written for another join."""
    now = _plain({"spec": spec.to_json(), "strategy": strategy, "units": units, "options": dict(options)})
    state = StateTable.find(root)
    if state is None:
        return StateTable.create(root, schema, {"query": query, **now})
    before = state.description
    check_same(before["spec"], now["spec"])
    if before["units"] != now["units"]:
        raise StateMismatch.changed("number of units", before["units"], now["units"])
    if (before["strategy"], before["options"]) != (now["strategy"], now["options"]):
        raise StateMismatch.changed("strategy", _named(before), _named(now))
    state.writable()
    return state


def _named(doc: Mapping[str, Any]) -> str:
    options = ", ".join(f"{k}={v}" for k, v in doc["options"].items())
    return f"{doc['strategy']}({options})" if options else str(doc["strategy"])


def _plain(doc: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from JSON."""
    return dict(json.loads(json.dumps(doc)))
