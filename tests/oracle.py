"""The oracle: DuckDB joins the same Arrow tables, written here from scratch."""

from __future__ import annotations

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


def duck_join(left: pa.Table, right: pa.Table, on: str, how: str) -> list[tuple]:
    """Rows of `left JOIN right ON on`, left columns then right ones; `on` is DuckDB's SQL over l and r."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("lt", left)
        db.register("rt", right)
        if how == "cross":
            return db.execute("SELECT l.*, r.* FROM lt l CROSS JOIN rt r").fetchall()
        columns = "l.*" if how in ("left_semi", "left_anti") else "l.*, r.*"
        return db.execute(f"SELECT {columns} FROM lt l {DUCK_HOW[how]} JOIN rt r ON {on}").fetchall()
