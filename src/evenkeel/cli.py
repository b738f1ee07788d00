"""`evenkeel`: join files, explain a join, see the difference in a demo."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evenkeel.errors import EvenkeelError, UnreadableInput

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Distributed joins on Spark that do not suffer from skew.",
)
_FORMATS = ("parquet", "csv", "json")

Left = Annotated[str, typer.Argument(help="Parquet, CSV or JSON: a file or a folder of files")]
Right = Annotated[str, typer.Argument(help="the same for the right input")]
On = Annotated[
    str | None, typer.Option("--on", help="a column, columns separated by commas, or a condition over l and r")
]
How = Annotated[str, typer.Option("--how", help="inner, left, right, full, left_semi, left_anti, cross")]
Scheme = Annotated[
    str, typer.Option("--scheme", help="auto, hash, broadcast, heavy_light, one_bucket, m_bucket, equi_weight")
]
Workers = Annotated[int | None, typer.Option("--workers", help="regions to balance over")]
Memory = Annotated[str, typer.Option("--memory", help="memory of the local Spark")]


@app.command()
def join(
    left: Left,
    right: Right,
    out: Annotated[Path, typer.Option("--out", help="folder to write the result to")],
    on: On = None,
    how: How = "inner",
    scheme: Scheme = "auto",
    workers: Workers = None,
    format: Annotated[str, typer.Option("--format", help="parquet, csv or json")] = "parquet",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
    memory: Memory = "4g",
) -> None:
    """Join two inputs and write the result."""
    _check_target(out, format, overwrite, (left, right))
    console = Console(stderr=True)
    with console.status("starting Spark") as status:
        plan = _plan(left, right, on, how, scheme, workers, memory, status)
        chosen = "left to Spark" if plan.native else plan.scheme
        status.update(f"joining ({chosen})")
        _write(plan.execute(), out, format)
    console.print(f"[green]wrote[/] {out}  ({chosen}: {plan.tree.reason})")


@app.command()
def explain(
    left: Left,
    right: Right,
    on: On = None,
    how: How = "inner",
    scheme: Scheme = "auto",
    workers: Workers = None,
    memory: Memory = "4g",
) -> None:
    """Say how a join would be run, and why."""
    with Console(stderr=True).status("starting Spark") as status:
        text = _plan(left, right, on, how, scheme, workers, memory, status).explain()
    print(text)


@app.command("multi-join")
def multi_join(
    on: Annotated[str, typer.Option("--on", help="a condition over the inputs' names, or a column they all have")],
    input: Annotated[list[str], typer.Option("--input", help="NAME=PATH, once for each input")],
    out: Annotated[Path | None, typer.Option("--out", help="folder for the result; without it: explain")] = None,
    scheme: Annotated[str, typer.Option("--scheme", help="auto, hash, random, hybrid, per_value")] = "auto",
    workers: Workers = None,
    format: Annotated[str, typer.Option("--format", help="parquet, csv or json")] = "parquet",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
    cross: Annotated[bool, typer.Option("--cross", help="allow inputs that no condition connects")] = False,
    memory: Memory = "4g",
) -> None:
    """Join several inputs in one shuffle, or say how that would be done."""
    paths = dict(_named(text) for text in input)
    if len(paths) < len(input):
        raise UnreadableInput.at(", ".join(input), "two inputs have one name")
    _check_target(out, format, overwrite, paths.values())
    console = Console(stderr=True)
    with console.status("starting Spark") as status:
        frames = dict(zip(paths, _read(list(paths.values()), memory), strict=True))
        status.update("reading statistics")
        import evenkeel as ek

        plan = ek.plan_multi(frames, on, scheme=scheme, workers=workers, cross=cross)
        if out is not None:
            status.update(f"joining ({plan.scheme})")
            _write(plan.execute(), out, format)
    if out is None:
        print(plan.explain())
    else:
        console.print(f"[green]wrote[/] {out}  ({plan.scheme}: {plan.tree.reason})")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="folder for the data and the picture")] = Path("out"),
    rows: Annotated[int, typer.Option("--rows", help="orders, and as many taxi positions")] = 120_000,
) -> None:
    """A ride-hailing join, with Spark as it is and with Evenkeel, and both loads drawn."""
    from evenkeel.demo import run

    run(out, rows, Console())


@app.command()
def bucket(
    source: Annotated[str, typer.Argument(help="Parquet, CSV or JSON: a file or a folder of files")],
    table: Annotated[str, typer.Argument(help="folder of the bucketed table")],
    key: Annotated[str, typer.Option("--key", help="a column, or columns separated by commas")],
    bucket_size: Annotated[str, typer.Option("--bucket-size", help="about how large a file may become")] = "256MB",
    buckets: Annotated[int | None, typer.Option("--buckets", help="a fixed number of buckets, none sharded")] = None,
    mode: Annotated[str, typer.Option("--mode", help="error, overwrite or append")] = "error",
    memory: Memory = "4g",
) -> None:
    """Bucket and sort a table once, so that it can be joined again and again without a shuffle."""
    import evenkeel as ek

    names = [n.strip() for n in key.split(",")]
    console = Console(stderr=True)
    with console.status("starting Spark") as status:
        (frame,) = _read([source], memory)
        doing = {"announced": "counting keys", "counted": "writing", "staged": "checking", "placed": "committing"}
        made = ek.bucketed.write(
            frame, table, names, bucket_size=bucket_size, buckets=buckets, mode=mode,
            progress=lambda step: status.update(doing.get(step, step)),
        )  # fmt: skip
    console.print(f"[green]wrote[/] {made.path}  ({made.rows:,} rows, {made.buckets} buckets, {made.shards} shards)")


@app.command()
def bucket_join(
    left: Annotated[str, typer.Argument(help="a bucketed table")],
    right: Annotated[str, typer.Argument(help="another one")],
    out: Annotated[Path | None, typer.Option("--out", help="folder to write the result to")] = None,
    how: How = "inner",
    format: Annotated[str, typer.Option("--format", help="parquet, csv or json")] = "parquet",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
    memory: Memory = "4g",
) -> None:
    """Join two bucketed tables without a shuffle; without --out, say how it would be done."""
    import evenkeel as ek
    from evenkeel.spark.session import local_session

    _check_target(out, format, overwrite, (left, right))
    console = Console(stderr=True)
    with console.status("starting Spark") as status:
        plan = ek.bucketed.plan(local_session("evenkeel", memory=memory), left, right, how)
        if out is not None:
            status.update("joining")
            _write(plan.execute(), out, format)
    if out is None:
        print(plan.explain())
    else:
        console.print(f"[green]wrote[/] {out}")


@app.command()
def simulate(
    strategy: Annotated[str, typer.Argument(help="hash, contrand, fastjoin, hypercube, ...")],
    left: Annotated[str, typer.Option("--left", help="uniform, zipf:1.0, hot:0.3, flips:0.3:20, wandering, sorted; "
                                                     "@50000 sets the keys")] = "zipf:1.0",
    right: Annotated[str, typer.Option("--right", help="the same for the right input")] = "zipf:1.0",
    units: Annotated[int, typer.Option("--units", help="units to balance over")] = 16,
    epochs: Annotated[int, typer.Option("--epochs")] = 60,
    rows: Annotated[int, typer.Option("--rows", help="rows of both inputs, in all epochs")] = 1_000_000,
    window: Annotated[int | None, typer.Option("--window", help="epochs that a row is kept")] = None,
) -> None:
    """What a strategy would make of two key distributions, epoch by epoch. Starts no Spark."""
    from evenkeel.simulate import run
    from evenkeel.simulate.distributions import parse

    print(run.simulate(strategy, parse(left), parse(right), units=units, epochs=epochs, rows=rows, window=window))


@app.command()
def inspect(
    table: Annotated[str, typer.Argument(help="a bucketed table")],
    lines: Annotated[int, typer.Option("--lines", help="how many buckets to list")] = 32,
    check: Annotated[bool, typer.Option("--check", help="compare every file with its checksum")] = False,
) -> None:
    """Buckets, shards and sizes of a bucketed table, and its hottest keys. Starts no Spark."""
    from evenkeel.bucketed.inspect import inspect as described

    print(described(table, lines=lines, check=check))


@app.command("jvm-archive")
def jvm_archive(
    file: Annotated[Path, typer.Argument(help="where to write it; about 190 MB")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what is there")] = False,
) -> None:
    """Write an archive of Spark's classes, from which jobs and restarted streams begin seconds earlier."""
    from evenkeel.jvm_archive import build, option

    if file.exists() and not overwrite:
        raise UnreadableInput.target_exists(str(file))
    console = Console(stderr=True)
    with console.status("running a batch join and a stream join to see which classes they need"):
        build(file)
    console.print(f"[green]wrote[/] {file}  ({file.stat().st_size / 1e6:,.0f} MB). Start Spark with")
    print(f"--conf spark.driver.extraJavaOptions={option(file)}")


def _check_target(out: Path | None, format: str, overwrite: bool, inputs: Iterable[str]) -> None:
    if format not in _FORMATS:
        raise UnreadableInput.at(format, "it is not a format that can be written")
    if out is None or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise UnreadableInput.target_exists(str(out))
    for path in inputs:  # Spark empties the folder before it reads
        read = Path(path.removeprefix("file://")).resolve()
        if out.resolve() in (read, *read.parents):
            raise UnreadableInput.target_is_read(str(out), path)


def _write(result: Any, out: Path, format: str) -> None:
    writer = result.write.mode("overwrite").format(format)
    (writer.option("header", True) if format == "csv" else writer).save(str(out))


def _named(text: str) -> tuple[str, str]:
    name, sign, path = text.partition("=")
    if not sign or not name.strip() or not path:
        raise UnreadableInput.at(text, "an input is given as NAME=PATH, such as R=orders.parquet")
    return name.strip(), path


def _read(paths: list[str], memory: str) -> list[Any]:
    from evenkeel.spark.session import local_session

    kinds = [_format_of(p) for p in paths]
    spark = local_session("evenkeel", memory=memory)
    frames = []
    for path, kind in zip(paths, kinds, strict=True):
        reader = spark.read.format(kind)
        if kind == "csv":
            reader = reader.option("header", True).option("inferSchema", True)
        frames.append(reader.load(path))
    return frames


def _plan(
    left: str, right: str, on: str | None, how: str, scheme: str, workers: int | None, memory: str, status: Any
) -> Any:
    import evenkeel as ek

    frames = _read([left, right], memory)
    status.update("reading statistics")
    names: str | list[str] | None = on
    known = {c.lower() for c in frames[0].columns}
    if on is not None and "," in on and all(n.strip().lower() in known for n in on.split(",")):
        names = [n.strip() for n in on.split(",")]
    return ek.plan(frames[0], frames[1], on=names, how=how, scheme=scheme, workers=workers)


def _format_of(path: str) -> str:
    """By the ending of the file, or of the first data file in the folder."""
    if "://" in path:
        found = [f for f in _FORMATS if path.rstrip("/").endswith(f".{f}")]
        return found[0] if found else "parquet"
    here = Path(path)
    if not here.exists():
        raise UnreadableInput.at(path, "there is no such file or folder")
    files = sorted(here.rglob("*")) if here.is_dir() else [here]
    for file in files:
        if file.name.startswith(("_", ".")):
            continue
        for kind in _FORMATS:
            if kind in (s.lstrip(".").lower() for s in file.suffixes):
                return kind
    raise UnreadableInput.at(path, "it is neither Parquet, CSV nor JSON")


def main() -> None:
    try:
        app(standalone_mode=True)
    except EvenkeelError as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        print(f"evenkeel: Spark could not do it: {said_by_spark(str(error))}", file=sys.stderr)
        sys.exit(1)


def said_by_spark(text: str) -> str:
    """The one line of an error that says what it is, and the last that says why."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line[found.start() :] for line in said if (found := re.search(r"\[[A-Z][A-Z_.]+\]", line))]
    first = (named or said)[0]
    causes = [line.removeprefix("Caused by: ").partition(": ")[2] for line in said if line.startswith("Caused by: ")]
    return f"{first} ({causes[-1]})" if causes and causes[-1] and causes[-1] not in first else first


if __name__ == "__main__":
    main()
