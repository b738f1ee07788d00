"""The schemes, in the order `explain` lists them. A new scheme is one file and one line here."""

from __future__ import annotations

from evenkeel.schemes.base import Scheme
from evenkeel.schemes.broadcast import Broadcast
from evenkeel.schemes.hash import Hash
from evenkeel.schemes.heavy_light import HeavyLight

SCHEMES: tuple[Scheme, ...] = (Hash(), Broadcast(), HeavyLight())


def scheme_named(name: str) -> Scheme:
    return next(s for s in SCHEMES if s.name == name)
