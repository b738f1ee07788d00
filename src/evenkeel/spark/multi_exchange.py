"""A hypercube layout becomes partitions: rows are sent to their cells, each input in one exchange.

    input -> key hashes, row number -> block -> cells (copied) -> repartitionById

Invariant: where a row goes is a function of the row and of the layout alone, as in `exchange`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from evenkeel.schemes.hypercube import CubeLayout
from evenkeel.spark.exchange import numbered
from evenkeel.spark.multi_binding import BoundQuery

SALT = "5851"
"""Keeps the number of a row apart from the hash of its key, where the key is all it has."""


def cell_of(relation: int) -> str:
    return f"_cell{relation}"


def hashed(bound: BoundQuery, relation: int) -> list[str]:
    """The 64-bit hash of every attribute of a relation, as SQL."""
    query = bound.query
    return [f"xxhash64(`{query.attributes[a].columns[relation]}`)" for a in query.of(relation)]


def routed(bound: BoundQuery, relation: int, layout: CubeLayout, stable: bool) -> DataFrame:
    """The rows of a relation, one for each cell they go to, with the cell's number; not yet shuffled."""
    df = bound.frames[relation]
    kept = df.columns
    row = "0L"
    if layout.uses_rows(relation):
        df, row = numbered(df, bound.columns(relation), stable, SALT)
    route = layout.route_sql(relation)
    keys = hashed(bound, relation)
    if route.block is not None:
        # Hashes and the row's number are worked out once, before rows are copied.
        names = [f"_h{j}" for j in range(len(keys))]
        hashes = (f"{k} AS {n}" for k, n in zip(keys, names, strict=True))
        df = df.selectExpr(*kept, *hashes, f"{row} AS _number")
        df = df.selectExpr("*", f"explode_outer({route.block.format(*names, row='_number')}) AS _block")
        keys, row = names, "_number"
    cells = route.cells.format(*keys, row=row)
    if not route.single:
        cells = f"explode_outer({cells})"
        df = df.selectExpr(*kept, f"{cells} AS _copy")
        cells = "_copy"
    # It cannot be NULL; said so, Spark infers no filter that would work out every cell twice.
    return df.selectExpr(*kept, f"coalesce({cells}, 0) AS {cell_of(relation)}")


def exchanged(df: DataFrame, relation: int, layout: CubeLayout) -> DataFrame:
    """Every region one partition: the only shuffle of the input."""
    return df.repartitionById(layout.workers, cell_of(relation))
