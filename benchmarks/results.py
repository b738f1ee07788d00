"""Results on disk: dated JSON written after every step, pictures beside it, a table for the README."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


class Results:
    def __init__(self, name: str, parts: bool = False) -> None:
        """`parts`: the benchmark is run part by part, and a part joins those that were measured on the same day."""
        self.name = name
        self.stem = f"{dt.date.today().isoformat()}-{name}"
        self.data: dict[str, Any] = {
            "benchmark": name,
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "pyspark": version("pyspark"),
                "evenkeel": version("evenkeel"),
            },
            "cases": [],
        }
        before = FOLDER / f"{self.stem}.json"
        if parts and before.exists():
            self.data = json.loads(before.read_text()) | {k: self.data[k] for k in ("date", "machine")}

    def say(self, line: str) -> None:
        print(line, flush=True)

    def add(self, key: str, value: Any) -> None:
        if isinstance(self.data.get(key), list):
            self.data[key].append(value)
        else:
            self.data[key] = value
        self._save()

    def _save(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.stem}.json").write_text(json.dumps(self.data, indent=1) + "\n")

    def picture(self, name: str, svg: str) -> None:
        (FOLDER / f"{self.stem}-{name}.svg").write_text(svg)

    def print_table(
        self,
        rows: list[list[str]],
        targets: list[tuple[str, str, bool]],
        more: Sequence[tuple[str, list[list[str]]]] = (),
    ) -> None:
        """The table, what was aimed at, and further tables with a title each."""
        lines = _lines(rows)
        lines += ["", "| target | measured | holds |", "|---|---|---|"]
        lines += [f"| {what} | {value} | {'yes' if holds else 'NO'} |" for what, value, holds in targets]
        for title, table in more:
            lines += ["", f"**{title}**", "", *_lines(table)]
        self.data["targets"] = [{"target": t, "measured": m, "holds": bool(h)} for t, m, h in targets]
        self._save()
        (FOLDER / f"{self.stem}.md").write_text("\n".join(lines) + "\n")
        print("\n".join(lines), flush=True)


def _lines(rows: list[list[str]]) -> list[str]:
    head = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return head + ["| " + " | ".join(r) + " |" for r in rows[1:]]
