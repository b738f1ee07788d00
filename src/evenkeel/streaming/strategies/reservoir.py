"""A growing sample of a growing stream: every row with one probability, which only falls.

    rate q      a row is in while its content hash, as a fraction, is below q
    too many    q is halved, and rows whose hash is above it leave: the sample is as if q had been so from the start
    window      rows come in order of arrival, so the oldest part of the sample stands for the rows that expired

The output needs no reservoir of its own: the pairs among two samples of rate q are a sample of the output of rate q^2.
Source: Squall, section 6.3.1 (Bernoulli sampling with subsampling).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenkeel.types import Float64, Int64

MOST = 2048
"""Rows of a sample: 32 KiB of memory in every commit."""


@dataclass(frozen=True, eq=False)
class Reservoir:
    rate: float
    positions: Mapping[str, Float64]
    hashes: Mapping[str, Int64]

    @classmethod
    def empty(cls, inputs: Sequence[str]) -> Reservoir:
        return cls(1.0, {i: np.empty(0) for i in inputs}, {i: np.empty(0, dtype=np.int64) for i in inputs})

    def with_rows(self, rows: Mapping[str, tuple[Float64, Int64]]) -> Reservoir:
        """With the rows of an epoch, sampled at this rate or a higher one."""
        positions = {i: np.concatenate([self.positions[i], rows[i][0]]) for i in rows}
        hashes = {i: np.concatenate([self.hashes[i], rows[i][1]]) for i in rows}
        rate = self.rate
        kept = {i: _below(h, rate) for i, h in hashes.items()}
        while max(int(k.sum()) for k in kept.values()) > MOST:
            rate /= 2
            kept = {i: _below(h, rate) for i, h in hashes.items()}
        return Reservoir(rate, {i: positions[i][kept[i]] for i in rows}, {i: hashes[i][kept[i]] for i in rows})

    def newest(self, held: Mapping[str, float]) -> Reservoir:
        """Without what stands for rows that are no longer held."""
        keep = {i: min(len(p), max(1, round(held[i] * self.rate))) for i, p in self.positions.items()}
        return Reservoir(
            self.rate,
            {i: p[len(p) - keep[i] :] for i, p in self.positions.items()},
            {i: h[len(h) - keep[i] :] for i, h in self.hashes.items()},
        )

    def to_json(self) -> dict[str, Any]:
        packed = {i: [_pack(self.positions[i]), _pack(self.hashes[i])] for i in self.positions}
        return {"rate": self.rate, "rows": packed}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Reservoir:
        rows = doc["rows"]
        return cls(
            float(doc["rate"]),
            {i: np.frombuffer(base64.b64decode(p), dtype=np.float64) for i, (p, _) in rows.items()},
            {i: np.frombuffer(base64.b64decode(h), dtype=np.int64) for i, (_, h) in rows.items()},
        )


def _below(hashes: Int64, rate: float) -> Any:
    return hashes.view(np.uint64).astype(np.float64) < rate * 2.0**64


def _pack(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
