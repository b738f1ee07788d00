"""Tiered merging: segments of like size become one, so that probing looks into few of them.

    tier 0   ▪ ▪ ▪ ▪ ▪ ▪     `fanout` segments of one tier ...
    tier 1       ■           ... become one of the next, `fanout` times as large

Invariant: merging changes which files hold a unit's rows, never which rows it holds.
Cost: a row is rewritten log_fanout(rows) times at most, and a unit has at most (fanout - 1) segments a tier, until
segments reach `largest` rows, which are left alone. With a window a merged segment spans at most `period`
microseconds, the archive period of BiStream's section 3.3: what expires then expires soon after its newest row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.state.segment import Segment


@dataclass(frozen=True, slots=True)
class Tiers:
    fanout: int = 6
    smallest: int = 16_384
    """Segments up to this many rows form the lowest tier."""
    largest: int = 4_000_000
    period: int | None = None

    def tier(self, rows: int) -> int:
        tier, top = 0, self.smallest
        while rows > top:
            tier, top = tier + 1, top * self.fanout
        return tier

    def choose(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments of one input and unit to merge now; none, or at least two. The cheapest tier goes first."""
        tiers: dict[int, list[Segment]] = defaultdict(list)
        for s in segments:
            if s.rows < self.largest:
                tiers[self.tier(s.rows)].append(s)
        for tier in sorted(tiers):
            for group in self._groups(tiers[tier]):
                if len(group) >= self.fanout:
                    return group
        return []

    def _groups(self, segments: list[Segment]) -> list[list[Segment]]:
        """Neighbours in time that fit one archive period and the largest segment."""
        groups: list[list[Segment]] = []
        for s in sorted(segments, key=lambda s: (s.min_time or 0, s.epoch, s.path)):
            if groups and self.fits([*groups[-1], s]):
                groups[-1].append(s)
            else:
                groups.append([s])
        return groups

    def fits(self, group: Sequence[Segment]) -> bool:
        """Whether segments may be one: not too many rows, and of one archive period."""
        if sum(s.rows for s in group) > self.largest * 2:
            return False
        if self.period is None:
            return True
        low = min(s.min_time for s in group if s.min_time is not None)
        high = max(s.max_time for s in group if s.max_time is not None)
        return high - low <= self.period
