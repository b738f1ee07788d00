"""The hypercube schemes, in the order `explain` lists them. A new scheme is one file and one line here."""

from __future__ import annotations

from evenkeel.schemes.hypercube.base import CubeScheme
from evenkeel.schemes.hypercube.hash import HashCube
from evenkeel.schemes.hypercube.hybrid import HybridCube
from evenkeel.schemes.hypercube.per_value import PerValueCube
from evenkeel.schemes.hypercube.random import RandomCube

CUBES: tuple[CubeScheme, ...] = (HashCube(), RandomCube(), HybridCube(), PerValueCube())


def cube_named(name: str) -> CubeScheme:
    return next(s for s in CUBES if s.name == name)
