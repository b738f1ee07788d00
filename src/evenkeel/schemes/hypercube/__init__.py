"""Hypercubes: many relations joined in one exchange, each worker a cell of a cube. Never imports pyspark."""

from evenkeel.schemes.hypercube.base import CubeProblem, CubeScheme
from evenkeel.schemes.hypercube.layout import ROW, Block, CubeLayout, CubeRoute, Dimension
from evenkeel.schemes.hypercube.registry import CUBES, cube_named

__all__ = [
    "CUBES",
    "ROW",
    "Block",
    "CubeLayout",
    "CubeProblem",
    "CubeRoute",
    "CubeScheme",
    "Dimension",
    "cube_named",
]
