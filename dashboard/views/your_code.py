"""The user's own lines: where the main thread of a process was, and what it did there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, Final

from whyidle.dashboard.views import health
from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.runs.stacks import CodeLine, StackSamples
from whyidle.monitor.runs.summary import STACKS, in_order, subjects
from whyidle.monitor.signals.account import HostAccount, HostRow, account_of
from whyidle.monitor.store import Event, Reader, Run

# A day has more; so many tell its shares as well.
MOST_EVENTS: Final = 240
MOST_LINES: Final = 12
LEAST_LINE: Final = 0.005
# Smaller boxes, or more of them, cannot be seen, and cost time.
LEAST_BOX: Final = 0.004
MOST_BOXES: Final = 250
# No agent sends deeper chains; a store may hold anything.
MOST_DEPTH: Final = 30
# A box whose time is mostly of one class has its colour.
MOSTLY: Final = 0.9
# A smaller part of the samples that is missing needs no word.
NOTABLE: Final = 0.02
# What is not told apart is worth a word from here on.
MUCH: Final = 0.2

NOT_SAMPLED: Final = "no process has the agent inside, which looks where its main thread is"
NOT_YET: Final = "the agent has kept no samples yet"
NEVER: Final = "the agent kept no samples in this run"
NONE_HERE: Final = "this range has no samples, which a long run keeps only once a minute"
NO_CODE: Final = "none of your lines"
RARER: Final = "rarer lines"
ROOT: Final = "main thread"
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
class Box:
    """A box of the chart: a line within a chain, or what the thread did at the end of one."""

    key: str
    parent: str
    # ``None``: words stand for it.
    line: CodeLine | None
    words: str
    share: float
    error: float
    doing: Mapping[HostClass, float]
    # Its class; ``None``: its time is of several, which the boxes in it show.
    colour: HostClass | None
    is_end: bool


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
    return YourCode(account, shown, len(lines) - len(shown), _boxes(account), caveats)


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
        lines.append(HotLine(line, share, account.error(share), _sorted(doing)))
    return sorted(lines, key=lambda each: -each.share)


def named(line: CodeLine | None) -> str:
    """Return a line in a few words."""
    if line is None:
        return NO_CODE
    return f"{PurePath(line.file).name}:{line.line} in {line.function}"


# Boxes -------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Branch:
    """A line on the way in, with all that was found below it."""

    line: CodeLine | None
    share: float = 0.0
    doing: dict[HostClass, float] = field(default_factory=dict)
    # Where the chain ends here.
    own: dict[HostClass, float] = field(default_factory=dict)
    inner: dict[CodeLine | None, _Branch] = field(default_factory=dict)

    def add(self, row: HostRow) -> None:
        self.share += row.share
        self.doing[row.doing] = self.doing.get(row.doing, 0.0) + row.share


def _boxes(account: HostAccount) -> list[Box]:
    """Return the boxes, the outermost first."""
    root = _Branch(None)
    for way, row in _ways(account):
        at = root
        at.add(row)
        for line in way or (None,):
            known = at.inner.get(line)
            if known is None:
                known = at.inner[line] = _Branch(line)
            at = known
            at.add(row)
        at.own[row.doing] = at.own.get(row.doing, 0.0) + row.share
    return list(_drawn(root, "", account, _least(root)))


def _ways(account: HostAccount) -> Iterator[tuple[tuple[CodeLine, ...], HostRow]]:
    """Yield each row with its chain from the outermost line in.

    The agent sends the innermost lines of a deep chain: what called them, other chains show.
    """
    outer: dict[CodeLine, tuple[CodeLine, ...]] = {}
    for row in account.rows:
        for place, line in enumerate(row.frames[:-1]):
            outer.setdefault(line, row.frames[place + 1 :])
    for row in account.rows:
        frames = row.frames[:MOST_DEPTH]
        while frames and len(frames) < MOST_DEPTH:
            more = tuple(line for line in outer.get(frames[-1], ()) if line not in frames)
            if not more:
                break
            frames += more
        yield frames[::-1], row


def _least(root: _Branch) -> float:
    """Return the share that a box needs to be one of the largest."""
    shares, waiting = [], [root]
    while waiting:
        branch = waiting.pop()
        shares.append(branch.share)
        waiting.extend(branch.inner.values())
    shares.sort(reverse=True)
    return max(LEAST_BOX, shares[MOST_BOXES - 1] if len(shares) >= MOST_BOXES else 0.0)


def _drawn(branch: _Branch, parent: str, account: HostAccount, least: float) -> Iterator[Box]:
    shown = [each for each in branch.inner.values() if each.share >= least]
    ends: dict[HostClass | None, tuple[float, dict[HostClass, float]]] = {
        doing: (share, {doing: share}) for doing, share in branch.own.items()
    }
    rare: dict[HostClass, float] = {}
    for each in branch.inner.values():
        if each.share < least:
            for doing, share in each.doing.items():
                rare[doing] = rare.get(doing, 0.0) + share
    if rare:
        ends[None] = sum(rare.values()), rare
    # A line where every chain ends, and all do one thing, needs no box in it.
    is_end = not shown and len(ends) == 1
    words = named(branch.line) if parent else ROOT
    key = _key(parent, branch.line.file if branch.line else "", words)
    yield Box(key, parent, branch.line, words, branch.share, account.error(branch.share),
              _sorted(branch.doing), _mostly(branch.doing), is_end)  # fmt: skip
    if is_end:
        return
    for each in shown:
        yield from _drawn(each, key, account, least)
    for kind, (share, doings) in ends.items():
        line, what = (None, RARER) if kind is None else (branch.line, "")
        yield Box(_key(key, str(kind)), key, line, what, share, account.error(share),
                  _sorted(doings), _mostly(doings), is_end=True)  # fmt: skip


def _mostly(doing: Mapping[HostClass, float]) -> HostClass | None:
    first = max(doing, key=lambda each: doing[each])
    return first if doing[first] >= MOSTLY * sum(doing.values()) else None


def _sorted(doing: Mapping[HostClass, float]) -> dict[HostClass, float]:
    return dict(sorted(doing.items(), key=lambda item: -item[1]))


def _key(*parts: str) -> str:
    """Return a name that stays the same while the shares change."""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()
