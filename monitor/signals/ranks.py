"""The ranks of a job on this host: where each one's main thread was, held against the others.

Ranks make their steps together. Whoever works longest makes the others wait: they stand in a
collective, or for a device that stands in one, while it is still at its own work.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LEAST_POINTS
from whyidle.monitor.core.finding import Place
from whyidle.monitor.core.host_class import AWAITS, ELSEWHERE, LAUNCHES, HostClass
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import Chain, CodeLine, Counts, StackSamples, summed
from whyidle.monitor.runs.summary import (
    HALF_OF_LOOKS_MS,
    STACKS,
    Watched,
    event_data,
    in_order,
    subjects,
)
from whyidle.monitor.signals.account import divided
from whyidle.monitor.signals.awaited import in_collective
from whyidle.monitor.signals.limits import MOST_PROCESSES, NEWEST, POINTS
from whyidle.monitor.signals.recorded import RankSeen
from whyidle.monitor.store import Reader, Run

# Steps a second are means over the same time, with an end each.
ALIKE: Final = 1.2
FEW: Final = "the ranks were not sampled for long enough"
# Why no rank is named, where more would tell; the second is that of ``core/ranks.py``.
SHORT: Final = frozenset({FEW, "too few steps to tell a late rank from chance"})


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
                event_data(reader, run, (STACKS,), who, since_ms, most=NEWEST)
            )
            for rank, who in first.items()
        }

    stacks = looks(start_ms + HALF_OF_LOOKS_MS)
    if any(each.looks < LEAST_POINTS for each in stacks.values()):
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
        for rank, who in sorted(first.items())[:MOST_PROCESSES]
    )


def _steps(who: Watched) -> int:
    return 0 if who.counted is None else who.counted.steps or 0


@dataclass(frozen=True, slots=True)
class LateRow:
    """A part of a rank's own work: the user's line, what it did there, and how much more of it."""

    line: CodeLine | None
    doing: HostClass
    # Of its time, and what the others have there, in the middle.
    share: float
    others: float

    @property
    def more(self) -> float:
        """By how much it is more than theirs."""
        return self.share - self.others


class Seen(NamedTuple):
    """One chain: in which seconds it was seen, a bit each, and in how many samples it did what."""

    when: int
    waits: float
    launches: float
    own: float


@dataclass(frozen=True, slots=True)
class RankAccount:
    """Where the main thread of one rank was; the shares of a class and of the lines sum to one."""

    seen: RankSeen
    chains: tuple[Seen, ...]
    # Its own work, by line and class.
    works: Mapping[tuple[CodeLine | None, HostClass], float]
    # The share of the time in which it had a core, or wanted one.
    ran: float
    # That in which it waits for others, or for a device that does; in which it launches, or waits
    # to; and that of its own work, without what launches work of a device.
    waits: float
    launches: float
    own: float
    # Whether it was found in a collective.
    exchanges: bool

    @property
    def by_class(self) -> dict[str, float]:
        """The share of each class, the largest first; a wait in a collective is one of its own."""
        works = ((str(doing), share) for (_, doing), share in self.works.items())
        found = summed([("waits", self.waits), *works])
        return {name: round(share, 4) for name, share in found.items() if share}


def accounts_of(ranks: Sequence[RankSeen]) -> tuple[RankAccount, ...]:
    """Return the account of each rank that was sampled."""
    return tuple(_account(each) for each in ranks if each.stacks.samples)


def _account(seen: RankSeen) -> RankAccount:
    works: dict[tuple[CodeLine | None, HostClass], float] = {}
    found, ran, whole = [], 0.0, seen.stacks.samples
    # In an order of their own: what is drawn must not depend on how they were kept.
    for chain, counts in sorted(seen.stacks.chains.items(), key=str):
        waits, launches = _parts(chain, counts, works)
        found.append(Seen(counts.when, waits, launches, counts.samples - waits - launches))
        still = (counts.waited + counts.locked) / counts.known if counts.known else 0.0
        ran += counts.samples * (1 - still)
    return RankAccount(
        seen,
        tuple(found),
        {key: n / whole for key, n in works.items()},
        ran / whole,
        sum(each.waits for each in found) / whole,
        sum(each.launches for each in found) / whole,
        sum(each.own for each in found) / whole,
        any(map(in_collective, seen.stacks.chains)),
    )


def _parts(
    chain: Chain, counts: Counts, works: dict[tuple[CodeLine | None, HostClass], float]
) -> tuple[float, float]:
    """Return in how many samples a chain waited for others, and launched; add up the rest."""
    idle = busy = 0.0
    collective = in_collective(chain)
    # A wait of MPI's turns and asks instead of sleeping.
    turns = plays(Role.TURNS, chain.leaf)
    before: HostClass | None = None
    for doing, n in divided(chain, counts):
        if doing in AWAITS or (collective and (doing in ELSEWHERE or turns)):
            idle += n
            continue
        # Who launches work on a device may do so ahead of it, or stand in a queue that is full.
        if doing in LAUNCHES or (doing is HostClass.UNCLEAR and before is not doing):
            busy += n
        # Of one class what ran comes first; what sleeps at a line of its own launches nothing.
        before = doing
        works[chain.user, doing] = works.get((chain.user, doing), 0.0) + n
    return idle, busy


def are_one_job(accounts: Sequence[RankAccount], world_size: int | None) -> bool:
    """Tell whether processes with numbers work together: tasks of SLURM may be jobs of their own.

    Their framework says so, or they were seen in a collective; and they make their steps together.
    """
    if (world_size or 0) < 2 and not any(each.exchanges for each in accounts):
        return False
    paces = [pace for each in accounts if (pace := each.seen.means.get(m.PROCESS_STEPS))]
    return not paces or max(paces) <= ALIKE * min(paces)


def rows_of(account: RankAccount, others: Sequence[RankAccount]) -> tuple[LateRow, ...]:
    """Return where a rank works longer than the others do, the largest difference first."""
    rows = []
    for key, share in account.works.items():
        theirs = [each.works.get(key, 0.0) for each in others]
        rows.append(LateRow(*key, share, statistics.median(theirs) if theirs else 0.0))
    return tuple(sorted((row for row in rows if row.more > 0), key=lambda row: -row.more))


def places_of(rows: Sequence[LateRow], most: int = 3) -> tuple[Place, ...]:
    """Return the user's lines of such rows, each once."""
    found: dict[CodeLine, float] = {}
    for row in rows:
        if row.line is not None:
            found[row.line] = found.get(row.line, 0.0) + row.share
    return tuple(Place(*line, share) for line, share in list(found.items())[:most])
