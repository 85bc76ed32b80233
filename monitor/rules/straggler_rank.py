"""One rank is late, and all others wait for it.

## What it sees
The rank on this host that the others wait for in collectives, and the line at which it works
longer.

## Why it costs
The slowest rank sets the step time.

## How to fix
Look at that rank's line. Divide the work evenly: shards by stride or shuffled
(`DistributedSampler`), texts of similar length in a step. Move work of one rank (logging, saving)
to a thread, or do it less often. If the same line takes longer, check the host's disk, cores and
programs. For Python's collector see `gc_pauses`.

## When it is wrong
Ranks of other hosts are not seen: attach there too. For a slow device see `clock_throttled`, and
trace each rank.

## Documents
Beyond the documents: D3 counts communication, not which rank it waits for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Knows
from whyidle.monitor.core.host_class import ELSEWHERE, HOST_LOOKS, HostClass
from whyidle.monitor.core.measure import SAMPLES
from whyidle.monitor.rules import Fix, Framework, Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.ranks import SHORT, LateRow, RankAccount, places_of, rows_of
from whyidle.monitor.signals.user_lines import own

if TYPE_CHECKING:
    from whyidle.monitor.core.ranks import Ranks, RankShare

# A line that takes so many times as long as on the other ranks is of this rank alone.
ALONE: Final = 10.0
LATEST: Final = {True: "the latest for this part of the time", False: "collectives it came last to"}
# What a rank's own work is said to be, and what to do about it.
_OF_INPUT: Final = ELSEWHERE | {HostClass.LOADER, HostClass.PUT}


def detect(window: Window) -> Verdict:
    """Judge the ranks that were seen."""
    ranks = window.ranks
    if ranks is None:
        what = "all ranks of this host in one: attach the process that started them"
        return None if (window.world_size or 1) < 2 else window.lacks(Need.RECORDING, what)
    late = ranks.straggler
    if late is None:
        return window.lacks(Need.LONGER) if ranks.reason in SHORT else None
    mine = next((x for x in window.rank_accounts if x.seen.rank == late.rank), None)
    others = [x for x in window.rank_accounts if x.seen.rank != late.rank]
    # Those that make up the difference; samples are a little more anywhere.
    rows = () if mine is None else rows_of(mine, others)[:3]
    rows = tuple(row for row in rows if row.more >= LITTLE * rows[0].more)
    busier = _idle_meanwhile(window, late)
    is_live = window.ranks_source == SAMPLES
    if is_live and busier is not None and busier <= 0 and window.runs_ahead:
        # Its device has as much to do as theirs: what its host does more is hidden.
        return None
    slack = is_live and mine is not None and busier is None and _has_time(window, mine)
    confidence = Confidence.INFERRED if is_live else Confidence.MEASURED
    return Found(
        gain=_gain(window, late, others, busier, slack=slack),
        evidence=tuple(_evidence(window, ranks, late, rows, busier)),
        where=own((*window.where_late, *places_of(rows))),
        # There the others wait for it.
        slice=Slice.EXPOSED_COMM,
        severity=Severity.LOW if slack else None,
        title=_title(ranks, late, rows),
        confidence=Confidence.HINTED if slack else confidence,
        fixes=_fixes(rows),
        # Of the process that stands for the job other rules say what is wrong with those lines.
        knows=Knows.CAUSE if late.pid is not None and late.pid == window.job.pid else Knows.CURE,
    )


def _gain(
    window: Window,
    late: RankShare,
    others: Sequence[RankAccount],
    busier: float | None,
    *,
    slack: bool,
) -> Gain:
    """Return all that it has more to do at most, and what is left of it divided among all."""
    low, high = late.late
    if busier is not None:
        low, high = min(low, busier), max(high, busier)
    # The others get back no more than they wait, or may wait.
    waits = [each.waits + each.launches * window.runs_ahead for each in others]
    high = min(high, statistics.median(waits)) if waits else high
    low, several = min(low, high), 2 if window.ranks is None else len(window.ranks.each)
    return Gain.between(0.0 if slack else low * (several - 1) / several, high)


def _idle_meanwhile(window: Window, late: RankShare) -> float | None:
    """Return by how much busier the other ranks' GPUs claim to be: those wait in a kernel."""
    by_pid = {
        user.pid: gpu.means[m.GPU_UTILISATION]
        for gpu in window.job.gpus
        if m.GPU_UTILISATION in gpu.means
        for user in gpu.users
        if user.is_ours
    }
    mine = by_pid.get(late.pid) if late.pid is not None else None
    pids = {each.pid for each in window.job.ranks_seen} - {late.pid}
    others = [by_pid[pid] for pid in pids if pid in by_pid]
    return None if mine is None or not others else statistics.median(others) - mine


def _has_time(window: Window, late: RankAccount) -> bool:
    """Tell whether its host may have the time for what it does more: its device is behind."""
    if not window.runs_ahead or late.waits <= LITTLE:
        return False
    cores = late.seen.means.get(m.PROCESS_CPU)
    if window.device != "cpu" or cores is None:
        return True
    # What computes are other threads of it: they run for less of the time than the host works.
    return cores - late.ran >= late.own


def _title(ranks: Ranks, late: RankShare, rows: tuple[LateRow, ...]) -> str:
    *named, last = sorted(x.rank for x in (late, *ranks.alike) if x.rank is not None)
    who = f"Ranks {', '.join(map(str, named))} and {last} are" if named else f"Rank {last} is"
    one = len(ranks.each) - len(named) - 1 == 1
    waiting = "the other one waits" if one else "the others wait"
    if not rows or rows[0].line is None:
        return f"{who} late, and {waiting}"
    words = HOST_LOOKS[rows[0].doing].words
    return f"{who} late, {waiting}: {words} in {rows[0].line.function}"


def _evidence(
    window: Window, ranks: Ranks, late: RankShare, rows: tuple[LateRow, ...], busier: float | None
) -> Iterator[Evidence]:
    job, middle, source = window.job, sum(late.late) / 2, window.ranks_source
    yield Evidence.of("the others wait for it", window.measure_of_ranks(middle, "ratio"))
    if window.step_s is not None:
        each = window.measure_of_ranks(middle * window.step_s.value, "s")
        yield Evidence.of("late in a step by", each)
    yield Evidence.of(LATEST[source == SAMPLES], window.measure_of_ranks(late.last, "ratio"))
    for row in rows:
        at, line = "none of your code", row.line
        if line is not None:
            at = f"{Path(line.file).name}:{line.line} in {line.function}"
        words = f"{row.share:.0%} of its time, {row.others:.0%} of the others'"
        yield job.said(f"{HOST_LOOKS[row.doing].words} at {at}", words, SAMPLES)
    if busier is not None:
        yield Evidence.of("its GPU is less busy by", job.measure(busier, "ratio", "nvml"))
    # How long Python's collector ran on it, where that is longer than on the others: of the time
    # it takes a hundredth anywhere.
    seen = {x.rank: x.means.get(m.PROCESS_GC_PAUSE) for x in job.ranks_seen}
    mine = None if late.rank is None else seen.pop(late.rank, None)
    others = [pause for pause in seen.values() if pause is not None]
    if mine is not None and others and mine > statistics.median(others) + Severity.LOW.least:
        yield Evidence.of("its garbage collector", job.measure(mine, "ratio"))
    number = len(ranks.each)
    of = f"{number} of {max(window.world_size or 0, number)}"
    over = window.measure_of_ranks(number, "count")
    yield Evidence("ranks that were looked at", of, "", source, over.age_s, over.window_s)


_LOOK: Final = "Look at the line that makes this rank late, not where others wait."
_SHARED_OUT: Final = "Give all ranks the same amount of work: shards by stride or shuffled."
_FIXES: Final[dict[Framework, Fix]] = {
    "pytorch": Fix(
        f"{_LOOK} {_SHARED_OUT}",
        """\
# in place of shuffle=True: a sampler that shuffles for each rank
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler, **as_before)""",
    ),
    "jax": Fix(
        f"{_LOOK} {_SHARED_OUT}", "mine = samples[jax.process_index() :: jax.process_count()]"
    ),
}
_OF_ONE: Final = (
    "Move what only this rank does to a thread, or do it less often. The other ranks spend"
    " almost no time there. If all of them do it, look at what is slower on this one: its disk,"
    " its network, its part of the data."
)
_OF_ITS_HOST: Final = (
    "Look at what only this rank reads and waits for. Its disk, its part of the network, its"
    " loader workers or its cores may be slower; or read ahead on all ranks."
)


def _fixes(rows: tuple[LateRow, ...]) -> dict[Framework, Fix] | None:
    """Return what fits the line: done elsewhere, or a look at its host; else shared out anew."""
    if not rows:
        return None
    if rows[0].share > ALONE * rows[0].others:
        return both(_OF_ONE)
    return both(_OF_ITS_HOST) if rows[0].doing in _OF_INPUT else None


rule = Rule(title="One rank is late, and all others wait for it", fixes=_FIXES)
