"""Sort and merge by a number that holds the region and the key, so that the key is not shipped beside it.

    KeyInNumber     number = region + p * (key - least)      an INT: sorted and joined by as it is
    KeyAndRegion    packed = key << b | region               a BIGINT, where an INT has no room; b bits hold p regions
                    number = region + p * (key, folded)      computed from `packed` wherever it is needed

Invariant: what is shipped is the same for two rows of a region just when their keys are, for no key is outside what
it was made for: `least` to the largest, or 64 - b bits. That must be known of every key, not of a sample: from its
type, or because all were read; and a key that does not fit all the same, in files that have changed since, ends the
join with an error.
Cost: rows are 8 bytes shorter than with the number beside the key, to write, ship, sort and copy: 3 to 9% of a join of
rows of 56 bytes (docs/adr/0056). In an INT no pair is compared either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel.conditions import Condition
from evenkeel.local.base import NUMBER_BITS, REGION, Merging, Packing, conjunction, long_sql, same_values
from evenkeel.types import Int64

WORD = 64
TOLD_APART = 0.9
CHANGED = (
    "evenkeel: a join key does not fit how the join was planned. It was in none of the files when they were "
    "looked at, so they have changed since. Hint: read them again and plan the join again."
)


@dataclass(frozen=True)
class KeyInNumber(Packing):
    workers: int = 1
    least: int = 0
    most: int = 0
    """The smallest and the largest key."""
    checked: bool = False
    """Whether every key is compared with these, because its type does not tell."""

    exact = True

    @property
    def fits(self) -> bool:
        """Whether an INT has room."""
        return (self.most - self.least + 1) * self.workers <= 1 << NUMBER_BITS

    def pack(self, key: str, region: str) -> str:
        number = f"cast(cast({key} AS bigint) - {long_sql(self.least)} AS int) * {self.workers} + {region}"
        return _never_null(number, key, (self.least, self.most) if self.checked else None, "0")

    def number(self, packed: str) -> str:
        return packed

    def key(self, packed: str) -> str:
        return f"({packed} div {self.workers} + {long_sql(self.least)})"


@dataclass(frozen=True)
class KeyAndRegion(Packing):
    workers: int = 1
    checked: bool = False
    """Whether every key is compared with what fits, because its type does not tell."""

    exact = False

    @property
    def _low(self) -> int:
        return (self.workers - 1).bit_length()

    @property
    def _mask(self) -> int:
        """What is left of the number above the region."""
        return (1 << (NUMBER_BITS - self._low)) - 1

    @property
    def _end(self) -> int:
        return 1 << (WORD - self._low - 1)

    def fits(self, least: int, most: int) -> bool:
        return least >= -self._end and most < self._end

    def pack(self, key: str, region: str) -> str:
        packed = f"shiftleft(cast({key} AS bigint), {self._low}) | cast({region} AS bigint)"
        return _never_null(packed, key, (-self._end, self._end - 1) if self.checked and self._low else None, "0L")

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


def _never_null(packed: str, key: str, ends: tuple[int, int] | None, zero: str) -> str:
    """What is packed, as Spark can see that it is never NULL: rows without a key are gone."""
    if ends is not None:
        least, most = ends
        packed = f"IF({key} >= {long_sql(least)} AND {key} <= {long_sql(most)}, {packed}, raise_error('{CHANGED}'))"
    return f"coalesce({packed}, {zero})"


@dataclass(frozen=True)
class MergeOnPacked(Merging):
    packing: KeyInNumber | KeyAndRegion = KeyInNumber()
    name = "merge_on_packed"
    summary = "key and region shipped as one number and sorted by it: for whole numbers as keys"
    hash_bits = False

    def on(self, condition: Condition) -> str:
        left, right = REGION["left"], REGION["right"]
        same_number = f"{self.packing.number(left)} = {self.packing.number(right)}"
        return conjunction(same_number, None if self.packing.exact else same_values(left, right, False))
