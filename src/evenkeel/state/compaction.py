"""Tiered merging, at an even pace: segments of like size become one, so that probing looks into few of them.

    tier 0   ▪ ▪ ▪ ▪ ▪ ▪     `fanout` segments of one tier ...
    tier 1       ■           ... become one of the next, `fanout` times as large

Invariant: merging changes which files hold a unit's rows, never which rows it holds.
Cost: a row is rewritten log_fanout(rows) times at most, until segments reach `largest` rows, which are left alone.
Units fill their tiers together, so an epoch merges at most `pace` times the rows that the last one brought, small
tiers first; what is left waits for the next epochs, a few at most, because rows are rewritten less than `pace` times.
With a window a merged segment spans at most `period` microseconds, the archive period of BiStream's section 3.3:
what expires then expires soon after its newest row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenkeel.state.segment import Segment


@dataclass(frozen=True, slots=True)
class Tiers:
    fanout: int = 6
    smallest: int = 16_384
    """Segments up to this many rows form the lowest tier."""
    largest: int = 4_000_000
    period: int | None = None
    pace: int = 4
    """How many times the rows of the last epoch an epoch may rewrite; one merge is always allowed."""

    def tier(self, rows: int) -> int:
        tier, top = 0, self.smallest
        while rows > top:
            tier, top = tier + 1, top * self.fanout
        return tier

    def plan(self, segments: Iterable[Segment], fresh: int) -> dict[tuple[int, str], list[Segment]]:
        """What an epoch merges, by unit and input, when the last one brought `fresh` rows."""
        held: dict[tuple[int, str], list[Segment]] = defaultdict(list)
        for s in segments:
            held[s.unit, s.input].append(s)
        ready = {at: group for at, of in held.items() if (group := self.choose(of))}
        left = self.pace * fresh
        out: dict[tuple[int, str], list[Segment]] = {}
        for at in sorted(ready, key=lambda at: (self.tier(ready[at][0].rows), at)):
            rows = sum(s.rows for s in ready[at])
            if out and rows > left:
                break
            out[at] = ready[at]
            left -= rows
        return out

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
