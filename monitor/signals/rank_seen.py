"""The ranks of a job as a recording kept them: each once, all of the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.runs.summary import (
    HALF_OF_LOOKS_MS,
    STACKS,
    Watched,
    event_data,
    in_order,
    subjects,
)
from whyidle.monitor.store import Reader, Run

# A machine has no more GPUs than this, and a recording samples as many.
MOST: Final = 16
# Of each the newest events, ten seconds each at first: what is compared is of one time.
MOST_EVENTS: Final = 20
POINTS: Final = 100
# Of fewer seconds no late rank is told from chance.
LEAST_LOOKS: Final = 8


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank of a job, as a recording saw it."""

    rank: int
    pid: int
    # Where its main thread was, of the same seconds for all ranks.
    stacks: StackSamples = field(default_factory=StackSamples)
    means: Mapping[Metric, float] = field(default_factory=dict)
    steps: int | None = None


def ranks_of(reader: Reader, run: Run, start_ms: int, end_ms: int) -> tuple[RankSeen, ...]:
    """Return each rank of a run once, with what was seen of it; none where there is only one."""
    first: dict[int, Watched] = {}
    for each in in_order(run):
        # A loader's workers have the rank of whom they load for, who began before them.
        known = None if each.rank is None else first.get(each.rank)
        if each.rank is not None and (known is None or (_steps(each) and not _steps(known))):
            first[each.rank] = each
    if len(first) < 2:
        return ()
    asked = metrics_of(Scope.PROCESS)

    def looks(since_ms: int) -> dict[int, StackSamples]:
        return {
            rank: StackSamples.of_events(
                event_data(reader, run, (STACKS,), who, since_ms, most=MOST_EVENTS)
            )
            for rank, who in first.items()
        }

    stacks = looks(start_ms + HALF_OF_LOOKS_MS)
    if any(each.looks < LEAST_LOOKS for each in stacks.values()):
        # Of a short recording there is no more; then what starts one rank late is in it.
        stacks = looks(start_ms)
    return tuple(
        RankSeen(
            rank,
            who.pid,
            stacks[rank],
            reader.means(asked, subjects(reader, run, who), start_ms, end_ms, POINTS),
            _steps(who) or None,
        )
        for rank, who in sorted(first.items())[:MOST]
    )


def _steps(who: Watched) -> int:
    return 0 if who.counted is None else who.counted.steps or 0
