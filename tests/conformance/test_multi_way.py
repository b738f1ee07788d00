"""Multi-way joins against DuckDB: queries x schemes, NULLs and duplicates included."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle import duck

import evenkeel as ek
from evenkeel.batch import cells
from evenkeel.schemes.hypercube import CUBES

SCHEMES = ["auto", *(c.name for c in CUBES)]
QUERIES = {
    "chain": "R.y = S.y AND S.z = T.z",
    "chain and inequality": "R.y = S.y AND S.z = T.z AND T.t < R.x",
    "triangle": "R.y = S.y AND S.z = T.z AND T.t = R.x",
    "star": "F.a = D.k AND F.b = E.k AND F.c = G.k",
    "one key": "R.y = S.y AND S.y = T.t AND T.t = F.a",
    "two keys a pair": "R.x = S.y AND R.y = S.z AND S.z = T.z",
    "equality and inequality": "R.y = S.y AND S.z < T.z",
    "inequalities": "R.x < S.y AND S.z <> T.z",
    "NULLs are equal": "R.y <=> S.y AND S.z <=> T.z",
    "expressions and filters": "R.x + 1 = S.y * 2 AND S.z = T.z AND R.y > 3 AND length(F.s) = T.t AND F.a < 9",
    "two names for one": "R.x = S.y AND R.y = S.y AND S.z = T.z",
    "four-cycle": "R.y = S.y AND S.z = T.z AND T.t = F.a AND F.b = R.x",
}


@pytest.fixture(scope="module")
def tables(seed):
    rng = np.random.default_rng(seed)

    def column(n: int, hot: float) -> pa.Array:
        values = rng.integers(0, 12, n)
        values[rng.random(n) < hot] = 7
        return pa.array(values, mask=rng.random(n) < 0.1)

    def table(n: int, **columns: float) -> pa.Table:
        return pa.table({name: column(n, hot) for name, hot in columns.items()})

    made = {
        "R": table(60, x=0.1, y=0.4),
        "S": table(50, y=0.3, z=0.4),
        "T": table(50, z=0.4, t=0.0),
        "F": table(80, a=0.3, b=0.0, c=0.2),
        "D": table(8, k=0.0),
        "E": table(9, k=0.2),
        "G": table(1, k=0.0),
    }
    text = pa.array([None if v is None else "x" * (v % 5) for v in made["F"]["b"].to_pylist()])
    return made | {"F": made["F"].append_column("s", text)}


@pytest.fixture(scope="module")
def frames(spark, tables):
    return {name: spark.createDataFrame(t).repartition(3).cache() for name, t in tables.items()}


def used(on: str) -> list[str]:
    return [name for name in "RSTFDEG" if f"{name}." in on]


def oracle(tables, on: str) -> list[tuple]:
    names = used(on)
    with duck(**{n: tables[n] for n in names}) as db:
        columns = ", ".join(f"{n}.*" for n in names)
        sql = on.replace("<=>", "IS NOT DISTINCT FROM")
        return sorted(db.execute(f"SELECT {columns} FROM {', '.join(names)} WHERE {sql}").fetchall(), key=repr)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("query", QUERIES)
def test_as_duckdb(frames, tables, interpreted, query, scheme):
    on = QUERIES[query]
    inputs = {n: frames[n] for n in used(on)}
    assert rows_of(ek.multi_join(inputs, on, scheme=scheme, workers=12)) == oracle(tables, on)


@pytest.mark.parametrize("query", QUERIES)
def test_a_pipeline_as_duckdb(frames, tables, interpreted, query):
    on = QUERIES[query]
    made = ek.plan_multi({n: frames[n] for n in used(on)}, on, scheme="hybrid", workers=12)
    plan = made.as_pipeline()
    assert plan.scheme == "pipeline"
    assert rows_of(plan.execute()) == oracle(tables, on)


def test_what_a_pipeline_ships_is_counted(frames, tables, interpreted):
    inputs = {n: frames[n] for n in "RST"}
    plan = ek.plan_multi(inputs, QUERIES["chain"], scheme="hash", workers=12).as_pipeline()
    ran, counted = plan.measure(), plan.measure(run=False)
    assert ran.rows_in.tolist() == counted.rows_in.tolist()
    assert ran.rows_out.sum() == len(oracle(tables, QUERIES["chain"]))
    last = "RST"[plan.tree.order.relations[-1]]
    first_join = [c for c in QUERIES["chain"].split(" AND ") if f"{last}." not in c]
    can_match = [*first_join, "S.y IS NOT NULL", "S.z IS NOT NULL"]
    assert ran.rows_between == len(oracle(tables, " AND ".join(can_match)))
    read = sum(len(oracle(tables, f"{n}.{c} = {n}.{c}")) for n, c in (("R", "y"), ("T", "z")))
    assert ran.rows_in.sum() >= read + ran.rows_between


def test_cells_too_large_to_hash_are_merged(frames, tables, interpreted, monkeypatch):
    monkeypatch.setattr(cells, "MOST_BUILT", 0)
    for query in ("chain", "triangle"):
        on = QUERIES[query]
        df = ek.multi_join({n: frames[n] for n in used(on)}, on, scheme="hybrid", workers=12)
        plan = df._jdf.queryExecution().executedPlan().toString()
        assert "SortMergeJoin" in plan and "ShuffledHashJoin" not in plan
        assert rows_of(df) == oracle(tables, on)


def test_a_task_holds_few_hash_tables(spark, tables, interpreted):
    names = [f"E{i}" for i in range(12)]
    inputs = {n: spark.createDataFrame(tables["E"]) for n in names}
    df = ek.multi_join(inputs, "k", scheme="hash", workers=4)
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("ShuffledHashJoin"), plan.count("SortMergeJoin")) == (cells.MOST_TABLES, 11 - cells.MOST_TABLES)
    times = Counter(k for k in tables["E"]["k"].to_pylist() if k is not None)
    assert df.count() == sum(n**12 for n in times.values())


def test_names_alone_and_a_cross_join(frames, tables, interpreted):
    got = ek.multi_join({n: frames[n] for n in "DEG"}, "k", workers=4)
    assert got.columns == ["k"]
    want = [row[:1] for row in oracle(tables, "D.k = E.k AND E.k = G.k")]
    assert rows_of(got) == sorted(want, key=repr)
    got = ek.multi_join({n: frames[n] for n in "DEG"}, "D.k = E.k", workers=4, cross=True)
    assert got.columns == ["D_k", "E_k", "G_k"]
    assert rows_of(got) == oracle(tables, "D.k = E.k AND (G.k = G.k OR G.k IS NULL)")


def test_empty_inputs(spark, frames, interpreted):
    empty = frames["S"].filter("false")
    for scheme in SCHEMES:
        joined = ek.multi_join({"R": frames["R"], "S": empty, "T": frames["T"]}, QUERIES["chain"], scheme=scheme)
        assert joined.count() == 0


def rows_of(df) -> list[tuple]:
    got = df.toArrow()
    return sorted(zip(*(c.to_pylist() for c in got.columns), strict=True), key=repr)
