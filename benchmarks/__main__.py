"""`python -m benchmarks [workload]`: run one workload, or all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.workloads import adaptive, band, multiway, repeated, soak, stream, zipf

WORKLOADS = {
    "zipf": zipf.run,
    "band": band.run,
    "multiway": multiway.run,
    "repeated": repeated.run,
    "stream": stream.run,
    "adaptive": adaptive.run,
}
ON_REQUEST = {"soak": soak.run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("workload", nargs="?", choices=[*WORKLOADS, *ON_REQUEST, "all"], default="all")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows a side")
    parser.add_argument("--keys", type=int, default=100_000, help="distinct keys")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("out/bench"), help="where generated data is kept")
    parser.add_argument("--only", help="one case, such as both:1.0")
    parser.add_argument("--window-rows", type=int, default=50_000, help="stream: rows a side and batch, windowed")
    parser.add_argument("--history-rows", type=int, default=100_000, help="stream: the same without a window")
    parser.add_argument("--tpch-rows", type=int, default=6_001_215, help="stream: at most so many rows of an input")
    parser.add_argument("--adaptive-rows", type=int, default=60_000, help="adaptive: rows a side and batch on Spark")
    parser.add_argument("--kills", type=int, default=50, help="soak: how often the query is killed")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    for name, run in WORKLOADS.items():
        if options.workload in (name, "all"):
            run(options)
    for name, run in ON_REQUEST.items():
        if options.workload == name:
            run(options)


if __name__ == "__main__":
    main()
