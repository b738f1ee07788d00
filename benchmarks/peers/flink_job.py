"""Run by the Python of Flink's environment: `flink_job.py FOLDER SLOTS` prints seconds as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {"state.backend.type": "hashmap", "pipeline.object-reuse": "true", "rest.bind-port": "0"}
COLUMNS = "k BIGINT, id BIGINT, v DOUBLE"
JOIN = "SELECT l.k, l.id, l.v, r.id, r.v FROM l JOIN r ON l.k = r.k"


def tables(settings: EnvironmentSettings, folder: Path, slots: str) -> TableEnvironment:
    env = TableEnvironment.create(settings)
    for key, value in {**SETTINGS, "parallelism.default": slots, "taskmanager.numberOfTaskSlots": slots}.items():
        env.get_config().set(key, value)
    for name, side in (("l", "left"), ("r", "right")):
        path = (folder / side).as_uri()
        env.execute_sql(
            f"CREATE TABLE {name} ({COLUMNS}) WITH ('connector'='filesystem', 'path'='{path}', 'format'='csv')"
        )
    env.execute_sql(f"CREATE TABLE rows_read ({COLUMNS}) WITH ('connector'='blackhole')")
    env.execute_sql(f"CREATE TABLE pairs ({COLUMNS}, id2 BIGINT, v2 DOUBLE) WITH ('connector'='blackhole')")
    return env


def seconds(env: TableEnvironment, sql: str) -> float:
    job = env.execute_sql(sql)
    job.wait()
    return float(job.get_job_client().get_job_execution_result().result().get_net_runtime()) / 1000


def main() -> None:
    folder, slots = Path(sys.argv[1]), sys.argv[2]
    env = tables(EnvironmentSettings.in_streaming_mode(), folder, slots)
    took: dict[str, object] = {}
    for name, sql in (
        ("scan", "INSERT INTO rows_read SELECT * FROM l UNION ALL SELECT * FROM r"),
        ("join", f"INSERT INTO pairs {JOIN}"),
    ):
        took[name] = [seconds(env, sql) for _ in range(2)]
    batch = tables(EnvironmentSettings.in_batch_mode(), folder, slots)
    with batch.execute_sql(f"SELECT COUNT(*) FROM ({JOIN})").collect() as found:
        took["results"] = next(iter(found))[0]
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
