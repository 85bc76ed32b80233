"""The user's own lines: where the main thread of a process was, and what it did there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whyidle.dashboard.views import health
from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs.stacks import CodeLine, StackSamples, summed
from whyidle.monitor.runs.summary import STACKS, in_order, subjects
from whyidle.monitor.signals.account import HostAccount, account_of
from whyidle.monitor.signals.code_boxes import Box, boxes
from whyidle.monitor.store import Event, Reader, Run

# A day has more; so many tell its shares as well.
MOST_EVENTS: Final = 240
MOST_LINES: Final = 12
LEAST_LINE: Final = 0.005
# A smaller part of the samples that is missing needs no word.
NOTABLE: Final = 0.02
# What is not told apart is worth a word from here on.
MUCH: Final = 0.2

NOT_SAMPLED: Final = "no process has the agent inside, which looks where its main thread is"
NOT_YET: Final = "the agent has kept no samples yet"
NEVER: Final = "the agent kept no samples in this run"
NONE_HERE: Final = "this range has no samples, which a long run keeps only once a minute"
STEP: Final = "monitor attach PID"


@dataclass(frozen=True, slots=True)
class Sampled:
    """A process whose main thread was looked at; the store may have several subjects for it."""

    name: str
    subjects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's at which the main thread was found."""

    # ``None``: no line of the user's was running.
    line: CodeLine | None
    share: float
    error: float
    # What it did there, the most first, as shares of all samples.
    doing: Mapping[HostClass, float]


@dataclass(frozen=True, slots=True)
class YourCode:
    """Where the time of the main thread goes, in one range of time."""

    account: HostAccount
    lines: Sequence[HotLine]
    more_lines: int
    boxes: Sequence[Box]
    # What a reader must know of the shares.
    caveats: Sequence[str]


def sampled(reader: Reader, run: Run) -> list[Sampled]:
    """Return the processes with samples, the one that stands for the job first."""
    there = reader.subjects_of_events(run.id, STACKS, Scope.PROCESS)
    found: dict[str, list[int]] = {}
    for watched in in_order(run) if there else ():
        name = f"pid {watched.pid}" if watched.rank is None else f"rank {watched.rank}"
        mine = [each for each in subjects(reader, run, watched) if each in there]
        for each in mine:
            del there[each]
        if mine:
            found.setdefault(name, []).extend(mine)
    for subject in sorted(there):
        # Where a recorder was killed, nothing else says who they were.
        found[f"process {subject}"] = [subject]
    return [Sampled(name, tuple(some)) for name, some in found.items()]


def of(reader: Reader, run: Run, who: Sampled, span: TimeRange) -> YourCode | None:
    """Return where the main thread of a process was; ``None`` without samples in this range."""
    within = range(span.start_ms, span.end_ms)
    ids = reader.event_ids(run.id, STACKS, who.subjects, within)
    total = len(ids)
    if total > MOST_EVENTS:
        ids = [ids[place * total // MOST_EVENTS] for place in range(MOST_EVENTS)]
    # Time goes on, and seldom brings new ones.
    return remember((reader, "your code", total, *ids), lambda: _read(reader, ids, total))


def _read(reader: Reader, ids: Sequence[int], total: int) -> YourCode | None:
    kept = [x for x in map(_with_chains, reader.events_by_id(ids)) if x is not None]
    samples = StackSamples.of_events(kept)
    account = account_of(samples)
    if account is None:
        return None
    lines = _lines(account)
    shown = [each for each in lines if each.share >= LEAST_LINE][:MOST_LINES]
    caveats = [*_caveats(account, samples, kept), *_spread(len(ids), total)]
    return YourCode(account, shown, len(lines) - len(shown), boxes(account), caveats)


def why_not(reader: Reader, run: Run, *, anything: bool) -> tuple[str, str]:
    """Return why there are no samples, and what to type; ``anything``: other ranges have some."""
    if anything:
        return NONE_HERE, ""
    state = health.health(reader, run)
    if state.agent_why:
        return state.agent_why, state.agent_step
    if any(watched.inside for watched in in_order(run)):
        return (NOT_YET if run.is_recording else NEVER), ""
    return NOT_SAMPLED, STEP


def _with_chains(event: Event) -> Mapping[str, Any] | None:
    """Return what an event keeps; of older programs the lines, since their leaves count twice."""
    data = event.data
    if not data or "rows" in data:
        return data
    return {"samples": data.get("samples", 0), "lines": data.get("lines", ())}


def _caveats(
    account: HostAccount, samples: StackSamples, kept: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    old = sum(data.get("samples", 0) for data in kept if "rows" not in data)
    if old:
        of_all = sum(data.get("samples", 0) for data in kept)
        which = "These samples are" if old == of_all else f"{old / of_all:.0%} of the samples are"
        yield (
            f"{which} of an older program, which kept your innermost lines alone: not what called"
            " them, and not the time outside of them."
        )
    if account.share(HostClass.UNCLEAR) > MUCH:
        yield "Your line: by its source, or without it, its own work and a call look the same."
    if not account.knows_waits:
        yield "The samples do not say whether the thread waited: no time is shown as a wait."
    whole = sum(counts.samples for counts in samples.chains.values())
    if whole - account.samples > NOTABLE * whole:
        yield f"Start-up is left out: {(whole - account.samples) / whole:.0%} of the samples."
    lost = samples.samples - whole
    if not old and lost > NOTABLE * samples.samples:
        yield f"{lost / samples.samples:.0%} of the samples were at lines too rare to be kept."


def _spread(read: int, total: int) -> Iterator[str]:
    if total > read:
        yield f"Read from {read:,} of {total:,} records, spread evenly over the range."


# Lines -------------------------------------------------------------------------------------------
def _lines(account: HostAccount) -> list[HotLine]:
    """Return the user's innermost lines, most first."""
    found: dict[CodeLine | None, dict[HostClass, float]] = {}
    for row in account.rows:
        doing = found.setdefault(row.frames[0] if row.frames else None, {})
        doing[row.doing] = doing.get(row.doing, 0.0) + row.share
    lines = []
    for line, doing in found.items():
        share = sum(doing.values())
        lines.append(HotLine(line, share, account.error(share), summed(doing.items())))
    return sorted(lines, key=lambda each: -each.share)
