"""Which part of the time each finding is about: rows of one account, none given away twice.

The account is the budget by slices, each divided by where the main thread was meanwhile. A finding
claims the rows that lie under its lines, else its whole slice, and of these no more than it may
give back. What is mostly claimed already, by findings that know a cure, is "also seen" there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from whyidle.monitor.core.finding import Found, Place
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.phases import Phase
from whyidle.monitor.signals.window import Window

# Of whose claim others have more than this, that has no word of its own.
MOST_OF: Final = 0.5
At: TypeAlias = tuple[str, int]
Key: TypeAlias = int | At | Slice
Claim: TypeAlias = dict[Key, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the time that lies in one slice, and under the same lines."""

    of: Slice
    share: float
    # As the main thread was sampled meanwhile; ``None``: nothing says where it was.
    host: HostRow | None = None
    phase: Phase = Phase.STEP
    # All lines that it lies under.
    at: frozenset[At] = frozenset()


def account(window: Window) -> tuple[Row, ...]:
    """Return all rows; none where it is not known where the time goes."""
    shares, host = window.shares, window.host
    hosts: dict[Slice, list[HostRow]] = {}
    # What keeps the device from nothing is beside its work, where it is known to do any.
    beside = Slice.COMPUTE if shares.get(Slice.COMPUTE) else Slice.IDLE_UNKNOWN
    for row in () if host is None else host.rows:
        hosts.setdefault(window.meaning.get(row.doing, beside), []).append(row)
    found = []
    for part, taken in shares.items():
        # Time without work is no loss.
        share = taken - (window.idles if part is Slice.IDLE_UNKNOWN else 0.0)
        mine = hosts.get(part, [])
        whole = sum(row.share for row in mine)
        if share > 0 and not whole:
            found.append(Row(part, share))
        elif share > 0 and host is not None:
            scale = share / whole
            for row in mine:
                at = frozenset((line.file, line.line) for line in (*row.frames, row.begins) if line)
                found.append(Row(part, scale * row.share, row, host.phase_of(row), at))
    return tuple(found)


def about(rows: Sequence[Row], found: Found) -> list[int]:
    """Return the numbers of the rows that a finding is about."""
    under, beyond = _about(rows, found)
    return [*under, *beyond]


def _about(rows: Sequence[Row], found: Found) -> tuple[list[int], list[int]]:
    """Return the rows under its lines, and those of its slice where it is about more."""
    lines = _places(found.where)
    named = [n for n, row in enumerate(rows) if row.host in found.rows]
    under = named or [n for n, row in enumerate(rows) if row.at & lines]
    high = 0.0 if found.gain is None else found.gain.high
    if under and sum(rows[n].share for n in under) >= MOST_OF * high:
        return under, []
    # What it is about is not where the thread stood.
    return under, [n for n, row in enumerate(rows) if row.of is found.slice and n not in under]


def claimed(rows: Sequence[Row], found: Found) -> Claim:
    """Return how much of which rows may come back; lines and slices for what no row has."""
    groups: list[dict[Key, float]] = [{n: rows[n].share for n in x} for x in _about(rows, found)]
    left = found.gain.high if found.gain else found.takes or 0.0
    if not any(groups):
        alone: list[Key] = [*_places(found.where)] or ([found.slice] if found.slice else [])
        groups = [dict.fromkeys(alone, left / max(1, len(alone)))]
    claim: Claim = {}
    for shares in groups:
        whole = sum(shares.values())
        part = min(1.0, left / whole) if whole else 0.0
        claim |= {key: share * part for key, share in shares.items() if part}
        left -= part * whole
    return claim


def _places(where: Sequence[Place]) -> set[At]:
    return {(place.file, place.line) for place in where}


@dataclass
class Claims:
    """Who has claimed what so far."""

    rows: Sequence[Row]
    # For each row who has how much of it: as is expected to come back, and at most.
    _owners: dict[Key, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def take(self, name: str, found: Found, claim: Claim, *, surely: bool = True) -> None:
        """Give a finding the rows that it is about; else they are its own at most."""
        gain = found.gain
        likely = (gain.expected / gain.high if gain and gain.high else 1.0) * surely
        for key, share in claim.items():
            self._owners.setdefault(key, {})[name] = likely * share, share

    def taken(self, claim: Claim, *, at_most: bool = False) -> dict[str, float]:
        """Return who has which part of what a finding is about already.

        What knows no cure for its lines is held against all that others may give back of them.
        """
        taken: dict[str, float] = {}
        wanted = sum(claim.values())
        for key, share in claim.items() if wanted else ():
            of = self.rows[key].of if isinstance(key, int) else key
            if of is Slice.COMPUTE and not at_most:
                # Cures of what the device computes share nothing: one follows the other.
                continue
            owners = {name: both[at_most] for name, both in self._owners.get(key, {}).items()}
            # Of what no row has only the claims themselves are known; and who only names a line
            # means what the others mean there, however large the row is.
            row = self.rows[key].share if isinstance(key, int) and not at_most else 0.0
            whole = max(row, share, sum(owners.values()))
            for name, part in owners.items():
                taken[name] = taken.get(name, 0.0) + share * part / whole / wanted
        return taken
