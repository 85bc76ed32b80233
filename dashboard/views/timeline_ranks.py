"""The ranks of a job under each other: which are shown, and who came last to which collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from whyidle.dashboard.views.timeline import TickRange, device_names
from whyidle.monitor.core.contracts.trace import RankJson, RanksJson, TraceJson
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.numbers import size
from whyidle.monitor.signals.meetings import Meeting, meetings
from whyidle.monitor.store.stored_traces import Kept, Names

# Of many ranks: those that come last the most, and those in the middle.
WORST: Final = 4
TYPICAL: Final = 4
# Under each other on one screen.
MOST: Final = 24
# Collectives of a window that are listed, and slices of what was done before one.
LISTED: Final = 12
_PARTS: Final = 2
_NOTABLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Row:
    """A collective, in words."""

    what: str
    ended_ns: int  # since the window began
    last: str
    waited: str
    before: str


@dataclass(frozen=True, slots=True)
class Comers:
    """Who came last in a window; ``came``: when, in ticks."""

    rows: Sequence[Row]
    came: Sequence[int]
    count: int


def usual(found: RanksJson) -> list[int]:
    """Return the ranks to begin with: all, or the worst and typical ones of many."""
    each = found["each"]
    if len(each) <= WORST + TYPICAL:
        return list(range(len(each)))
    late = {i: rank["late"][1] for i, rank in enumerate(each) if rank["late"] is not None}
    worst = sorted(late, key=lambda i: -late[i])[:WORST]
    middle = median(late.values()) if late else 0.0
    rest = sorted((i for i in late if i not in worst), key=lambda i: abs(late[i] - middle))
    # Where nothing tells them apart, the first.
    chosen = [*worst, *sorted(rest[:TYPICAL])]
    return chosen or list(range(WORST + TYPICAL))


def hidden(found: RanksJson, shown: Sequence[int]) -> str:
    """Return how many ranks are not shown, in words."""
    count = len(found["each"])
    if len(shown) == count:
        return ""
    which = ""
    if list(shown) == usual(found):
        which = f": the {WORST} that the others wait for the most, then {TYPICAL} in the middle"
    return f"{len(shown)} of {count} ranks are shown{which}. Choose others above."


def apart(found: RanksJson, shown: Sequence[int]) -> Iterator[str]:
    """Say which of the shown ranks have no place beside the others, and why."""
    for rank in (found["each"][i] for i in shown):
        if rank["last"] is None and rank["clock_ns"] is None:
            yield f"{_label(rank)} is next to no other: {rank['unknown']['last']}."


def comers(store: Path, trace: int, part: TickRange) -> Comers:
    """Return who came last to the collectives of a window."""
    with Kept.open(store) as kept:
        timeline = kept.window(trace, part.start, part.end, 1)
        ops = kept.operations(trace, part.start, part.end, clip=False)
        accounts = kept.account(trace, part.start, part.end)
        found = meetings(ops, accounts, part.start, part.end, LISTED)
        answer, names = timeline.trace.answer, timeline.names
        rows = [_row(answer, names, one, part.start) for one in found.shown]
    return Comers(rows, [one.came for one in found.shown], found.count)


def _row(answer: TraceJson, names: Names, one: Meeting, start: int) -> Row:
    kind = names[one.name]
    return Row(
        what=kind if one.bytes < 0 else f"{kind} of {size(one.bytes)}",
        ended_ns=one.ended - start,
        last=device_names(answer)[one.last],
        waited=clock(one.waited),
        before=", ".join(_before(one)),
    )


def _before(one: Meeting) -> Iterator[str]:
    """Yield what the last did before, what it did longer than the others first."""
    least = _NOTABLE * sum(one.before.values())
    some = [part for part, ns in one.before.items() if ns >= least]
    parts = sorted(some, key=lambda part: -one.before[part])[:_PARTS]
    if one.longer is not None:
        part, more = one.longer
        parts = [part, *(other for other in parts if other is not part)][:_PARTS]
        yield f"{LOOKS[part].words} {clock(one.before[part])}, {clock(more)} more than the others"
        parts = parts[1:]
    for part in parts:
        yield f"{LOOKS[part].words} {clock(one.before[part])}"


def _label(rank: RankJson) -> str:
    return rank["file"] if rank["rank"] is None else f"Rank {rank['rank']}"
