"""Spark's `xxhash64` in NumPy, so that a plan made in Python and a row routed by Spark agree on a key.

Invariant: for Arrow columns c1..cn holding Spark values, `xxhash64([c1..cn])` equals Spark's
`xxhash64(c1, .., cn)`: columns are folded left to right, each with the hash so far as its seed,
and a NULL leaves the seed as it is. Cost: O(bytes), vectorised; text is hashed once per length.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenkeel.types import Int64

SPARK_SEED = 42
_U64 = npt.NDArray[np.uint64]
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def xxhash64(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Int64:
    """The hash of each row, as Spark computes it."""
    rows = len(columns[0])
    seed = np.full(rows, SPARK_SEED, dtype=np.uint64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if not array.null_count:
            seed = _hash_valid(array, seed)
            continue
        valid = ~np.asarray(array.is_null())
        if valid.any():
            seed[valid] = _hash_valid(array.filter(pa.array(valid)), seed[valid])
    return seed.view(np.int64)


def supports(kind: pa.DataType) -> bool:
    """Whether values of this Arrow type can be hashed here."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or _is_bytes(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _hash_valid(array: pa.Array, seed: _U64) -> _U64:
    kind = array.type
    with np.errstate(over="ignore"):
        if pa.types.is_boolean(kind):
            return _hash_int(np.asarray(array.cast(pa.int32())), seed)
        if pa.types.is_int64(kind):
            return _hash_long(np.asarray(array), seed)
        if pa.types.is_integer(kind):
            return _hash_int(np.asarray(array.cast(pa.int32())), seed)
        if pa.types.is_date32(kind):
            return _hash_int(np.asarray(array.cast(pa.int32())), seed)
        if pa.types.is_timestamp(kind):
            micros = array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
            return _hash_long(np.asarray(micros), seed)
        if pa.types.is_float32(kind):
            return _hash_int(_canonical(np.asarray(array)).view(np.int32), seed)
        if pa.types.is_float64(kind):
            return _hash_long(_canonical(np.asarray(array)).view(np.int64), seed)
        if pa.types.is_decimal(kind):
            return _hash_decimal(array, seed)
        if _is_bytes(kind):
            return _hash_bytes([bytes(v) for v in array.cast(pa.large_binary()).to_pylist()], seed)
    raise TypeError(f"no stable hash for Arrow type {kind}")


def _canonical(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """-0.0 is 0.0 and every NaN is the same NaN, as in Spark's joins."""
    out = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(out), values.dtype.type(np.nan), out).astype(values.dtype)


def _hash_decimal(array: pa.Array, seed: _U64) -> _U64:
    with localcontext(prec=80):  # the default of 28 digits would round
        unscaled = [int(v.scaleb(array.type.scale)) for v in array.to_pylist()]
    if array.type.precision <= 18:
        return _hash_long(np.array(unscaled, dtype=np.int64), seed)
    # Java's BigInteger.toByteArray: big-endian two's complement, as short as the sign allows.
    return _hash_bytes(
        [u.to_bytes((u if u >= 0 else ~u).bit_length() // 8 + 1, "big", signed=True) for u in unscaled], seed
    )


def _rotl(x: _U64, bits: int) -> _U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _finish(h: _U64) -> _U64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _mix8(h: _U64, word: _U64) -> _U64:
    return _rotl(h ^ (_rotl(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _mix4(h: _U64, word: _U64) -> _U64:
    return _rotl(h ^ (word * _P1), 23) * _P2 + _P3


def _hash_int(values: npt.NDArray[np.int32], seed: _U64) -> _U64:
    word = values.astype(np.int64).view(np.uint64) & np.uint64(0xFFFFFFFF)
    return _finish(_mix4(seed + _P5 + np.uint64(4), word))


def _hash_long(values: Int64, seed: _U64) -> _U64:
    return _finish(_mix8(seed + _P5 + np.uint64(8), np.ascontiguousarray(values).view(np.uint64)))


def _hash_bytes(values: list[bytes], seed: _U64) -> _U64:
    lengths = np.array([len(v) for v in values])
    out = np.empty(len(values), dtype=np.uint64)
    for length in np.unique(lengths):
        where = np.flatnonzero(lengths == length)
        block = np.frombuffer(b"".join(values[i] for i in where), dtype=np.uint8)
        out[where] = _hash_block(block.reshape(len(where), int(length)), seed[where])
    return out


def _hash_block(block: npt.NDArray[np.uint8], seed: _U64) -> _U64:
    """XXH64 of the rows of a byte matrix (Collet's specification), all rows at once."""
    length = block.shape[1]

    def word(at: int, size: int) -> _U64:
        kind = np.dtype("<u8") if size == 8 else np.dtype("<u4")
        return np.ascontiguousarray(block[:, at : at + size]).view(kind)[:, 0].astype(np.uint64)

    at = 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
        while at <= length - 32:
            for i in range(4):
                lanes[i] = _rotl(lanes[i] + word(at + 8 * i, 8) * _P2, 31) * _P1
            at += 32
        h = _rotl(lanes[0], 1) + _rotl(lanes[1], 7) + _rotl(lanes[2], 12) + _rotl(lanes[3], 18)
        for lane in lanes:
            h = (h ^ (_rotl(lane * _P2, 31) * _P1)) * _P1 + _P4
    else:
        h = seed + _P5
    h = h + np.uint64(length)
    while at <= length - 8:
        h = _mix8(h, word(at, 8))
        at += 8
    if at <= length - 4:
        h = _mix4(h, word(at, 4))
        at += 4
    while at < length:
        h = _rotl(h ^ (block[:, at].astype(np.uint64) * _P5), 11) * _P1
        at += 1
    return _finish(h)


def rehash(values: Int64) -> Int64:
    """The hash of each number, as Spark's `xxhash64` of a BIGINT; faster than going through Arrow."""
    with np.errstate(over="ignore"):
        seed = np.full(len(values), SPARK_SEED, dtype=np.uint64)
        return _hash_long(values, seed).view(np.int64)
