"""Sort and merge by a number that holds the region and the key: both are shipped in the 8 bytes of the key alone.

    packed = key << b | region                       b bits hold any of p regions
    number = region + p * (the key, folded)          computed from `packed` wherever it is needed

Invariant: `packed` is the same for two rows of a region just when their keys are, for b + the bits of the key are at
most 64. That must be known of every key, not of a sample: from its type, or because all were read; and a key that
does not fit all the same, in files that have changed since, ends the join with an error.
Cost: rows are 8 bytes shorter than with the number beside the key, to write, ship, sort and copy: 3 to 9% of a join of
rows of 56 bytes (docs/adr/0056).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.conditions import Condition
from evenkeel.local.base import NUMBER_BITS, REGION, Merging, Packing, conjunction, same_values
from evenkeel.types import Int64

WORD = 64
TOLD_APART = 0.9
CHANGED = (
    "evenkeel: a join key is too large for how the join was planned. It was in none of the files when they were "
    "looked at, so they have changed since. Hint: read them again and plan the join again."
)


@dataclass(frozen=True)
class KeyAndRegion(Packing):
    workers: int = 1
    checked: bool = False
    """Whether every key is compared with what fits, because its type does not tell."""

    @property
    def _low(self) -> int:
        return (self.workers - 1).bit_length()

    @property
    def _mask(self) -> int:
        """What is left of the number above the region."""
        return (1 << (NUMBER_BITS - self._low)) - 1

    @property
    def key_bits(self) -> int:
        """How many bits are left for a key, its sign included."""
        return WORD - self._low

    def pack(self, key: str, region: str) -> str:
        packed = f"shiftleft(cast({key} AS bigint), {self._low}) | cast({region} AS bigint)"
        if self.checked and self._low:
            end = 2 ** (self.key_bits - 1)
            packed = f"IF({key} >= -{end}L AND {key} < {end}L, {packed}, raise_error('{CHANGED}'))"
        return f"coalesce({packed}, 0L)"  # never NULL, as Spark can see: rows without a key are gone

    def number(self, packed: str) -> str:
        low, high = (f"(shiftright({packed}, {by}) & {self._mask}L)" for by in (self._low, NUMBER_BITS))
        folded = f"(({low} + {high}) & {self._mask}L)"
        return f"cast({packed} & {2**self._low - 1}L AS int) + {self.workers} * cast({folded} AS int)"

    def tells_apart(self, keys: Int64) -> bool:
        """Whether numbers differ where these keys do, by and large: the others of a number are tried pair by pair."""
        folded = ((keys & self._mask) + (keys >> (NUMBER_BITS - self._low) & self._mask)) & self._mask
        return len(np.unique(folded)) >= TOLD_APART * len(np.unique(keys))

    def key(self, packed: str) -> str:
        return f"shiftright({packed}, {self._low})"


@dataclass(frozen=True)
class MergeOnPacked(Merging):
    packing: KeyAndRegion = KeyAndRegion()
    name = "merge_on_packed"
    summary = "key and region shipped as one number, sorted by part of it: for whole numbers as keys"
    hash_bits = False

    def on(self, condition: Condition) -> str:
        left, right = REGION["left"], REGION["right"]
        same_number = f"{self.packing.number(left)} = {self.packing.number(right)}"
        return conjunction(same_number, same_values(left, right, False))
