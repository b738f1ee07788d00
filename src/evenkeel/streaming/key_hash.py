"""The hash that stream joins know a key by: whole numbers that follow each other go round the units.

    key    [ a: 29 bits | b: 29 bits | x: 6 bits ]          ids given out in order: x counts, then b
    b'   = b ^ xxhash64(a)
    w'   = [ a | x ^ x >> 4 ] ^ xxhash64(b')
    hash = [ b' | w' ]                                      the place of a block of 64 keys is random, its keys differ

Ids that come in order are new in every epoch. Hashed one by one, 1,250 of them over 48 units give the fullest unit two
to three times the emptiest's, and no table made before they are known can tell which unit that will be (ADR 51).
Invariant: one to one, so that equal hashes are equal keys. The hashes of a block are 64 numbers in a row, which modulo
any number of units differ by one at most; keys of different blocks are as good as random, as are keys with steps
between them of 64 and more. In smaller steps keys of a block still differ (`x >> 4`).
Source: a Feistel network of two uneven rounds; keys of other types have Spark's xxhash64.
"""

from __future__ import annotations

import numpy as np

from evenkeel.hashing import rehash
from evenkeel.types import Int64

XXHASH64, IN_TURN = "xxhash64", "whole numbers in turn"
"""What a state says of the hash it was written with."""
_LOW, _HALF = 6, 29
_X, _B, _W = (1 << _LOW) - 1, (1 << _HALF) - 1, (1 << (_LOW + _HALF)) - 1


def in_turn(keys: Int64) -> Int64:
    a, b, x = (keys >> (_LOW + _HALF)) & _B, (keys >> _LOW) & _B, keys & _X
    b ^= rehash(a) & _B
    w = (a << _LOW | x ^ x >> 4) ^ (rehash(b) & _W)
    return np.asarray(b << (_LOW + _HALF) | w, dtype=np.int64)


def in_turn_sql(key: str) -> str:
    """The same of an expression of type bigint; NULL of NULL."""
    a, x = f"(shiftright({key}, {_LOW + _HALF}) & {_B}L)", f"({key} & {_X}L)"
    b = f"((shiftright({key}, {_LOW}) & {_B}L) ^ (xxhash64({a}) & {_B}L))"
    w = f"((shiftleft({a}, {_LOW}) | ({x} ^ shiftright({x}, 4))) ^ (xxhash64({b}) & {_W}L))"
    return f"(shiftleft({b}, {_LOW + _HALF}) | {w})"
