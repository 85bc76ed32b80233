"""The members of a job -> which collectives they shared, and when each of them came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.core.ranks import Arrivals, Who
from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.ranks.aligning import Match, Part, match, together
from whyidle.monitor.traces.ranks.member import ON_HOST, PARTS, WAIT_FOR_ALL, Member

Floats = NDArray[np.float64]

# Without steps, time is cut into so many parts: enough to tell chance from habit.
_BLOCKS: Final = 20
# Collectives times ranks, four tables of which are 500 MB.
MOST: Final = 16_000_000
# Names of groups that the file does not say but we do.
_UNNAMED: Final = ("stream ", ON_HOST)


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that took part in the same collectives; the rows are those of the first of them."""

    first: Part
    others: list[tuple[Part, Match]] = field(default_factory=list)

    @property
    def ranks(self) -> list[int]:
        """The members, by their numbers."""
        return [self.first.rank, *(part.rank for part, _ in self.others)]

    def took(self) -> Floats:
        """Return how long each collective took on each rank of the group; NaN: not seen."""
        found = np.full((len(self.first.rows), len(self.ranks)), np.nan)
        found[:, 0] = self.first.end - self.first.start
        for i, (part, fit) in enumerate(self.others, 1):
            has = fit.place >= 0
            found[fit.place[has], i] = (part.end - part.start)[has]
        return found

    def exposed(self, waits: Floats, took: Floats) -> Floats:
        """Return how much of each wait, which begins a collective, no computing covers."""
        found = waits.copy()
        for i, (part, place) in enumerate(self.placed()):
            has = place >= 0
            rows = place[has]
            at = np.nan_to_num(waits[rows, i] / np.maximum(took[rows, i], 1)) * PARTS
            low = np.minimum(at.astype(np.int64), PARTS - 1)
            covered = part.member.covered[part.rows[has]]
            n = np.arange(len(covered))
            a, b = covered[n, low], covered[n, low + 1]
            found[rows, i] -= a + (b - a) * (at - low)
        return np.maximum(found, 0.0)

    def placed(self) -> Iterator[tuple[Part, Ints]]:
        """Yield the part of each rank, and for its rows those of the first; -1: none."""
        yield self.first, np.arange(len(self.first.rows))
        for part, fit in self.others:
            yield part, fit.place


@dataclass(frozen=True, slots=True)
class Shared:
    """What all members shared."""

    groups: list[Group]
    whats: list[str]
    arrivals: Arrivals | None
    # The clock of each member less that of the first that has steps; None: nothing ties them.
    clock_ns: list[float | None]
    # Members whose collectives nobody else took part in.
    alone: list[int]
    has_steps: bool
    # The member whose steps and clock count.
    lead: int = 0
    # Whether the job had more collectives than were looked at.
    cut: bool = False


def shared(members: Sequence[Member], who: Sequence[Who]) -> Shared:
    """Match the members of a job."""
    whats: dict[str, int] = {}
    groups = [group for parts in _by_group(members, whats) for group in _grouped(parts)]
    several = [group for group in groups if group.others]
    tied = {rank for group in several for rank in group.ranks}
    alone = [i for i, member in enumerate(members) if len(member) and i not in tied]
    lead = max(range(len(members)), key=lambda i: len(members[i].step_start), default=0)
    clock = _clocks(len(members), several, lead)
    steps = _Steps.of(members[lead], several) if members else None
    if steps is None or not several:
        return Shared(groups, list(whats), None, clock, alone, has_steps=False, lead=lead)
    arrivals, cut = _arrivals(several, list(whats), who, clock, steps)
    return Shared(groups, list(whats), arrivals, clock, alone, steps.real, lead, cut)


def _by_group(members: Sequence[Member], whats: dict[str, int]) -> Iterator[list[Part]]:
    """Yield the parts of each group of that name, one a rank."""
    found: dict[str, list[Part]] = {}
    for rank, member in enumerate(members):
        numbers = np.array([whats.setdefault(w, len(whats)) for w in member.whats], np.int64)
        for i, name in enumerate(member.groups):
            rows = np.flatnonzero(member.group == i)
            if len(rows):
                found.setdefault(name, []).append(
                    Part(rank, member, rows, numbers[member.what[rows]])
                )
    yield from found.values()


def _grouped(parts: Sequence[Part]) -> list[Group]:
    """Put ranks together whose collectives are the same: a name may be that of many groups."""
    groups: list[Group] = []
    for part in parts:
        fits = [(fit, group) for group in groups if (fit := match(group.first, part)) is not None]
        fits = [(fit, group) for fit, group in fits if _belongs(fit, group.first, part)]
        if fits:
            fit, group = min(fits, key=lambda one: one[0].apart_ns)
            group.others.append((part, fit))
        else:
            groups.append(Group(part))
    return groups


def _belongs(fit: Match, first: Part, part: Part) -> bool:
    if not fit.agrees:
        return False
    name = part.member.groups[int(part.member.group[part.rows[0]])]
    on_host = name == ON_HOST
    return not name.startswith(_UNNAMED) or together(fit, first, part, on_host=on_host)


def _clocks(count: int, groups: Iterable[Group], lead: int) -> list[float | None]:
    """Follow the differences of clocks from group to group."""
    apart: dict[int, list[tuple[int, float]]] = {}
    for group in groups:
        for part, fit in group.others:
            apart.setdefault(group.first.rank, []).append((part.rank, fit.clock_ns))
            apart.setdefault(part.rank, []).append((group.first.rank, -fit.clock_ns))
    found: list[float | None] = [None] * count
    waiting: list[tuple[int, float]] = [(lead, 0.0)] if count else []
    while waiting:
        at, clock = waiting.pop()
        if found[at] is None:
            found[at] = clock
            waiting += [(rank, clock + more) for rank, more in apart.get(at, ())]
    return found


@dataclass(frozen=True, slots=True)
class _Steps:
    """Parts of time on the clock of one member; ``real``: steps of the job."""

    start: Ints
    end: Ints
    real: bool

    @classmethod
    def of(cls, member: Member, groups: Sequence[Group]) -> _Steps | None:
        """Return the steps, or else parts of the time in which anything was exchanged."""
        if len(member.step_start) > 1:
            return cls(member.step_start, member.step_end, real=True)
        if not groups:
            return None
        first = min(int(group.first.start.min()) for group in groups)
        last = max(int(group.first.end.max()) for group in groups)
        edges = np.linspace(first, last + 1, _BLOCKS + 1).astype(np.int64)
        return cls(edges[:-1], edges[1:], real=False)

    @property
    def length(self) -> float:
        """How long one takes on average: what is lost in some of them counts for all."""
        return float(self.end[-1] - self.start[0]) / len(self.start)

    def at(self, times: Floats) -> Ints:
        """Return the step of each time; -1: none."""
        i = np.searchsorted(self.start, times, "right") - 1
        # What runs after the host's last step belongs to none.
        inside = (i >= 0) & (times <= np.append(self.start[1:], self.end[-1])[i])
        return np.where(inside, i, -1)


def _arrivals(
    groups: Sequence[Group],
    whats: list[str],
    who: Sequence[Who],
    clock: Sequence[float | None],
    steps: _Steps,
) -> tuple[Arrivals, bool]:
    waited = np.array([what.split(",")[0] in WAIT_FOR_ALL for what in whats], np.bool_)
    late: list[Floats] = []
    exposed: list[Floats] = []
    step: list[Ints] = []
    labels: list[str] = []
    room, cut = MOST // max(1, len(who)), False
    for group in groups:
        if (ahead := clock[group.first.rank]) is None:
            continue
        of = steps.at((group.first.start + group.first.end) / 2 - ahead)
        rows = np.flatnonzero(waited[group.first.what] & (of >= 0))
        cut |= len(rows) > room
        rows = rows[:room]
        room -= len(rows)
        took = group.took()[rows]
        waits = took - np.nanmin(took, axis=1, keepdims=True)
        bare = group.exposed(_full(waits, rows, group), group.took())[rows]
        for into, table in ((late, np.nanmax(took, axis=1, keepdims=True) - took), (exposed, bare)):
            wide = np.full((len(rows), len(who)), np.nan)
            wide[:, group.ranks] = table
            into.append(wide)
        step.append(of[rows])
        labels += [whats[w] for w in group.first.what[rows].tolist()]
    if not late:
        nobody = np.zeros((0, len(who)))
        return Arrivals(who, nobody, np.zeros(0, np.int64), steps.length), cut
    found = Arrivals(
        who,
        np.concatenate(late),
        np.concatenate(step),
        steps.length,
        np.concatenate(exposed),
        labels,
    )
    return found, cut


def _full(waits: Floats, rows: Ints, group: Group) -> Floats:
    found = np.full((len(group.first.rows), waits.shape[1]), np.nan)
    found[rows] = waits
    return found
