"""The schemes, in the order `explain` lists them. A new scheme is one file and one line here."""

from __future__ import annotations

from evenkeel.schemes.base import Scheme
from evenkeel.schemes.broadcast import Broadcast
from evenkeel.schemes.equi_weight import EquiWeight
from evenkeel.schemes.hash import Hash
from evenkeel.schemes.heavy_light import HeavyLight
from evenkeel.schemes.m_bucket import MBucket
from evenkeel.schemes.one_bucket import OneBucket

SCHEMES: tuple[Scheme, ...] = (Hash(), Broadcast(), HeavyLight(), OneBucket(), MBucket(), EquiWeight())


def scheme_named(name: str) -> Scheme:
    return next(s for s in SCHEMES if s.name == name)
