"""Keeps evenkeel in layers: a module imports only from its own layer and from those below it.

A layer is a module or package directly under `evenkeel`. The layers below `spark` are plain Python that runs
without a cluster, so they do not import pyspark; and nothing reaches behind the public DataFrame API, which is
what lets the same code run on classic Spark and on Spark Connect.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "evenkeel"
LAYERS = (
    *("errors", "types", "hashing", "dealing", "charts", "report", "conditions", "stats", "schemes"),
    *("local", "plan", "sql", "state", "spark", "batch", "bucketed", "streaming", "simulate"),
    *("testing", "demo", "jvm_archive", "cli", "dashboard"),
)
WITHOUT_SPARK = (*LAYERS[: LAYERS.index("spark")], "simulate")
# The engine of stream joins runs without Spark too: only its adapter knows it.
SPARK_ADAPTERS = {"streaming": "structured"}
# The package itself gathers the public names; what is above it is for people who run it, not for importers.
ABOVE_PACKAGE = ("testing", "demo", "jvm_archive", "cli")
CLASSIC_ONLY = ("_jvm", "_jdf", "_jsc", "rdd")


def imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names that an import statement in `package` reaches; nothing for other nodes."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield tuple(alias.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        module = tuple(node.module.split(".")) if node.module else ()
        for alias in node.names:
            yield (*base, *module, alias.name)


def layer_of(name: tuple[str, ...]) -> str:
    """The layer that a dotted name of the package belongs to, or the package itself: `from evenkeel import join`."""
    return name[1] if len(name) > 1 and name[1] in LAYERS else PACKAGE


def may_import(layer: str, target: str) -> bool:
    if layer == PACKAGE:
        return target not in ABOVE_PACKAGE
    if target == PACKAGE:
        # Anywhere lower this would be a cycle, for the package imports those layers.
        return LAYERS.index(layer) >= LAYERS.index(ABOVE_PACKAGE[0])
    return LAYERS.index(target) <= LAYERS.index(layer)


def complaints(node: ast.AST, layer: str, package: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in CLASSIC_ONLY:
        yield f".{node.attr} is not in Spark Connect"
    for name in imported(node, package):
        if name[0] == "pyspark" and layer in WITHOUT_SPARK:
            yield f"{layer} must not import pyspark"
        adapter = SPARK_ADAPTERS.get(layer)
        if name[0] == "pyspark" and adapter is not None and adapter not in package:
            yield f"{layer} must not import pyspark outside {layer}.{adapter}"
        if name[0] == PACKAGE and not may_import(layer, layer_of(name)):
            yield f"{layer} must not import {layer_of(name)}"


def violations(path: Path) -> list[tuple[int, str]]:
    parts = path.relative_to(SRC).with_suffix("").parts
    layer = PACKAGE if parts[1] == "__init__" else parts[1]
    if layer not in (PACKAGE, *LAYERS):
        return [(1, f"{layer} is in no layer; give it a place in {Path(__file__).name}")]
    nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.stmt | ast.expr)]
    # One import of several names breaks a rule once, not once for each name.
    return sorted({(node.lineno, message) for node in nodes for message in complaints(node, layer, parts[:-1])})


def main() -> int:
    modules = sorted((SRC / PACKAGE).rglob("*.py"))
    found = [(path, line, message) for path in modules for line, message in violations(path)]
    for path, line, message in found:
        print(f"{path.relative_to(SRC.parent)}:{line}: {message}")
    if not found:
        print(f"layers ok: {len(modules)} modules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
