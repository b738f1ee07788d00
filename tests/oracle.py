"""The oracle: DuckDB joins the same Arrow tables, written here from scratch."""

from __future__ import annotations

from functools import cache

import duckdb
import pyarrow as pa

DUCK_HOW = {
    "inner": "INNER",
    "left": "LEFT",
    "right": "RIGHT",
    "full": "FULL",
    "left_semi": "SEMI",
    "left_anti": "ANTI",
}


def duck(**tables: pa.Table) -> duckdb.DuckDBPyConnection:
    """A connection that knows the tables by name and forgets them when it is closed."""
    db = _database().cursor()
    for name, table in tables.items():
        db.register(name, table)
    return db


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for a process: to open another takes ten times as long as a small join."""
    return duckdb.connect(config={"threads": 1}).execute("SET GLOBAL TimeZone = 'UTC'")


def duck_join(left: pa.Table, right: pa.Table, on: str, how: str) -> list[tuple]:
    """Rows of `left JOIN right ON on`, left columns then right ones; `on` is DuckDB's SQL over l and r."""
    with duck(lt=left, rt=right) as db:
        if how == "cross":
            return db.execute("SELECT l.*, r.* FROM lt l CROSS JOIN rt r").fetchall()
        columns = "l.*" if how in ("left_semi", "left_anti") else "l.*, r.*"
        return db.execute(f"SELECT {columns} FROM lt l {DUCK_HOW[how]} JOIN rt r ON {on}").fetchall()
