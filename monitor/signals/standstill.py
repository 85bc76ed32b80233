"""A job that stands still, or is stopped: where each main thread waits, since when, what works.

A healthy job may be at one line all the time, too (a trainer's ``fit``): so beside the line stands
what the kernel and the driver counted in that time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import msgspec

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import AGAIN, NEARLY_ALL
from whyidle.monitor.core.measure import SAMPLES
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples, summed
from whyidle.monitor.runs.summary import (
    GOES_ON,
    STACKS,
    STOPPED,
    Watched,
    event_data,
    in_order,
    subjects,
)
from whyidle.monitor.signals.limits import MOST_EVENTS, NEWEST, POINTS
from whyidle.monitor.store import Event, Gpu, Point, Reader, Run

# What frameworks say of themselves, and how often it is looked for a word of the recorder's.
FRAMEWORK: Final = "framework"
# Older than this nothing is said of now: a late event, and the tick that brings it.
LATEST_MS: Final = 75_000
REACH_MS: Final = round(1000 * m.REACH_S)
# The last samples of a job that is stopped by hand show how it stops.
ENDING_S: Final = 5.0
OF_GPUS: Final = (
    m.GPU_UTILISATION,
    m.GPU_SM_ACTIVITY,
    m.GPU_TENSOR_ACTIVITY,
    m.GPU_MEMORY_BANDWIDTH,
    m.GPU_MEMORY_USED,
    m.GPU_POWER,
    m.GPU_POWER_LIMIT,
)


@dataclass(frozen=True, slots=True)
class Collective:
    """The last collective that a rank began."""

    # Among those of its group, from the first on.
    number: int | None = None
    name: str | None = None
    sizes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    group: str | None = None
    # "scheduled", "started" or "completed", where the backend says so: gloo's is always the first.
    state: str | None = None

    @property
    def called(self) -> str:
        """Its name and number."""
        return f"{self.name or 'collective'} #{self.number}"

    @property
    def words(self) -> str:
        """What it is, as a person would say it."""
        shapes = ("x".join(map(str, size)) or "1" for size in self.sizes)
        what = " ".join((*dict.fromkeys(self.types), ", ".join(shapes))).strip()
        return f"{self.called}{f' of {what}' if what else ''}"


@dataclass(frozen=True, slots=True)
class Stand:
    """A main thread that was at one line of the user's all the time."""

    pid: int
    rank: int | None
    # Where it was found most.
    chain: Chain
    seconds: float
    # The share of the samples in which it did not run, and that for Python's lock alone.
    waits: float | None = None
    for_lock: float = 0.0
    # What it exchanged last with other ranks, where PyTorch's flight recorder says so.
    collective: Collective | None = None

    @property
    def line(self) -> CodeLine:
        """The user's line; anybody's, where none of the user's is on the stack."""
        return _line(self.chain) or CodeLine("?", 0, "?")


@dataclass(frozen=True, slots=True)
class Standstill:
    """All main threads of a job that make steps stand, for so long together."""

    stands: tuple[Stand, ...]
    seconds: float
    # Others that it started, such as a loader's workers, as far as they stand, too.
    helpers: tuple[Stand, ...] = ()
    since_ms: int | None = None
    # In that time, of the job, and of each GPU of its own.
    means: Mapping[Metric, float] = field(default_factory=dict)
    gpus: tuple[Mapping[Metric, float], ...] = ()
    # Whether it made steps before; the longest of them.
    stepped: bool = False
    # Where all of this is from.
    source: str = SAMPLES
    # Ranks that were asked and do not answer, and why.
    silent: Mapping[int, str] = field(default_factory=dict)
    step_s: float | None = None


def standstill_of(reader: Reader, run: Run, gpus: Sequence[Gpu], end_ms: int) -> Standstill | None:
    """Return how a job stands at the end of a span; ``None``: it moves, or nobody looked."""
    # Ranks make the steps, or the first process; a launcher's only waits for them.
    every = in_order(run)
    ranks = [each for each in every if each.rank is not None]
    workers = ranks or every[:1]
    helpers = [x for x in every if x not in workers and not (ranks and x.pid == run.target_pid)]
    steps = _series(reader, run, m.JOB_STEPS, run.started_ms, end_ms)
    last = max((point.ts_ms for point in steps if point.mean), default=0)
    # Of a long run a point stands for minutes: more exactly, from there on.
    fine = _series(reader, run, m.JOB_STEPS, last, end_ms) if last else []
    last = max((point.ts_ms for point in fine if point.mean), default=last)
    # A rate stays above nothing for as long as it reaches back.
    moved_ms = last - REACH_MS
    if moved_ms > end_ms - 2 * REACH_MS:
        return None
    found: list[tuple[Stand, int]] = []
    for each in workers:
        stand = _stand(reader, run, each, (moved_ms, end_ms))
        if stand is not None:
            found.append(stand)
        elif _events(reader, run, each, 1):
            return None
    if not found:
        return None
    since_ms = max(moved_ms, *(since for _, since in found))
    longest = _series(reader, run, m.JOB_STEP_P95, run.started_ms, end_ms)
    beside = (_stand(reader, run, each, (moved_ms, end_ms)) for each in helpers)
    job = metrics_of(Scope.JOB)
    return Standstill(
        stands=tuple(stand for stand, _ in found),
        seconds=(end_ms - since_ms) / 1000,
        helpers=tuple(each[0] for each in beside if each is not None and each[0].chain.frames),
        since_ms=since_ms,
        means=reader.means(job, [run.id], since_ms, end_ms, POINTS),
        gpus=tuple(reader.means(OF_GPUS, [gpu.id], since_ms, end_ms, POINTS) for gpu in gpus),
        stepped=any(point.mean for point in steps),
        step_s=max((p.most for p in longest if p.most is not None), default=None),
    )


def _events(reader: Reader, run: Run, who: Watched, most: int) -> list[Event]:
    """Return the newest stack samples, the newest first."""
    some = (
        event
        for subject in subjects(reader, run, who)
        for event in reader.events_of(run.id, STACKS, Scope.PROCESS, subject, most)
    )
    return sorted(some, key=lambda event: (-event.ts_ms, -event.id))


def _stand(
    reader: Reader, run: Run, who: Watched, span: tuple[int, int]
) -> tuple[Stand, int] | None:
    """Return where a main thread stands, and since when, after a moment in which it moved."""
    is_over, end_ms = run.ended_ms is not None, span[1]
    some = _same(_events(reader, run, who, AGAIN), span, is_over=is_over)
    if len(some) >= AGAIN - 1:
        some = _same(_events(reader, run, who, MOST_EVENTS), span, is_over=is_over)
    if not some:
        return None
    samples = StackSamples.of_events(event.data or {} for event in some)
    line = _top(samples)
    mine = {chain: n for chain, n in samples.chains.items() if _line(chain) == line}
    known = sum(n.known for n in mine.values())
    waited = sum(n.waited for n in mine.values())
    oldest = some[-1]
    since_ms = int(oldest.ts_ms - 1000 * _seconds(oldest))
    most = max(mine, key=lambda chain: mine[chain].samples)
    locked = sum(n.locked for n in mine.values())
    waits = (waited + locked) / known if known else None
    for_lock = locked / known if known else 0.0
    seconds, last = (end_ms - since_ms) / 1000, _collective(reader, run, who)
    return Stand(who.pid, who.rank, most, seconds, waits, for_lock, last), since_ms


def _collective(reader: Reader, run: Run, who: Watched) -> Collective | None:
    """Return what its agent says of it now; what it cannot mean is left out."""
    said = event_data(reader, run, (FRAMEWORK,), who, most=NEWEST)
    facts = ((data.get("facts") or {}) for data in said if data.get("probe") == "torch")
    last = [each["collective"] for each in facts if "collective" in each]
    if not last or not isinstance(last[-1], dict):
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(last[-1], Collective)
    return None


def _same(events: Sequence[Event], span: tuple[int, int], *, is_over: bool) -> list[Event]:
    """Return the newest events that are all at one line, and all of a span."""
    moved_ms, end_ms = span
    if is_over and events and _seconds(events[0]) < ENDING_S:
        events = events[1:]
    events = [event for event in events if event.ts_ms - 1000 * _seconds(event) >= moved_ms]
    if not events or end_ms - events[0].ts_ms > LATEST_MS:
        return []
    tops = ((event, _top(StackSamples.of_events([event.data or {}]))) for event in events)
    line: CodeLine | None = None
    found: list[Event] = []
    for event, top in takewhile(lambda each: each[1] is not None, tops):
        if line is not None and top != line:
            break
        line = top
        found.append(event)
    return found


def _seconds(event: Event) -> float:
    return (event.data or {}).get("seconds") or 0.0


def _top(samples: StackSamples) -> CodeLine | None:
    """Return the line that nearly all samples are at."""
    shares = summed((_line(chain), counts.samples) for chain, counts in samples.chains.items())
    shares.pop(None, None)
    most = next(iter(shares), None)
    return most if most is not None and shares[most] >= NEARLY_ALL * samples.samples else None


def _line(chain: Chain) -> CodeLine | None:
    return chain.user or chain.leaf


def _series(reader: Reader, run: Run, metric: Metric, start_ms: int, end_ms: int) -> list[Point]:
    return reader.series(metric, [run.id], start_ms, end_ms, POINTS)[run.id]


def missing(stands: Sequence[Stand]) -> tuple[Stand, ...]:
    """Return the ranks that have begun fewer collectives of a group than others wait in."""
    by_group: dict[str | None, dict[Stand, Collective]] = {}
    for each in stands:
        if each.collective is not None and each.collective.number is not None:
            by_group.setdefault(each.collective.group, {})[each] = each.collective
    for group in by_group.values():
        numbers = {stand: last.number or 0 for stand, last in group.items()}
        if len(group) > 1 and min(numbers.values()) < max(numbers.values()):
            return tuple(each for each, n in numbers.items() if n == min(numbers.values()))
        waiting = tuple(each for each, last in group.items() if last.state == "scheduled")
        if any(last.state == "started" for last in group.values()) and waiting:
            return waiting
    return ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """Who is stopped, the first one first, and since when."""

    pids: tuple[int, ...]
    since_ms: int
    seconds: float
    # Whether it was seen to happen; else it had been so before anybody looked.
    seen: bool = True


def stopped_of(reader: Reader, run: Run, end_ms: int) -> Stopped | None:
    """Return who is stopped; ``None``: nobody is."""
    on = reader.subjects_of_events(run.id, GOES_ON, Scope.PROCESS)
    off = reader.subjects_of_events(run.id, STOPPED, Scope.PROCESS)
    events: list[Event] = []
    for subject, newest_ms in off.items():
        if newest_ms <= end_ms and on.get(subject, -1) < newest_ms:
            events += reader.events_of(run.id, STOPPED, Scope.PROCESS, subject, 1)
    events.sort(key=lambda event: (event.ts_ms, event.id))
    pids = tuple(pid for e in events if isinstance(pid := (e.data or {}).get("pid"), int))
    if not pids:
        return None
    first = events[0]
    return Stopped(
        pids, first.ts_ms, (end_ms - first.ts_ms) / 1000, bool((first.data or {}).get("seen"))
    )
