"""The summary of a recording, read back from the store: it says what was kept, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.contracts.trace import JsonObject, LastTraceJson, StoredTraceJson
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import HARMLESS
from whyidle.monitor.processes import roles
from whyidle.monitor.processes.roles import Order
from whyidle.monitor.runs.aggregates import Compiled, ReadBack, compiled, reads
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.runs.training import LOOP, METRICS, Counted, Trained, trained
from whyidle.monitor.store import Event, Gpu, Key, Reader, Run, Summary, Unknown
from whyidle.monitor.trying.audit import PAIR

# A job may have had thousands of processes; the page shows the whole.
SCOPES = (Scope.GPU, Scope.JOB, Scope.HOST, Scope.MONITOR)
# The kind of event that says, every few seconds, where a main thread was.
STACKS = "stacks"
# They are collected for ten seconds and recorded at their end.
HALF_OF_LOOKS_MS = 5000
# Where its other threads were; and processes that hardly live, under the one that starts them.
THREADS, SHORT_LIVED = "thread_stacks", "short_lived_stacks"
# And where values were read back, and what was compiled, as sums.
READS, COMPILES = "reads", "compiles"
# A single one is news.
COMPILED = "compile"
# From here on steps are of another kind: none before can be compared with them.
UNIT = "unit"
# Something has stopped a process; or lets it go on, or has ended it.
STOPPED, GOES_ON = "stopped", "goes_on"
# What comes all the time is shown as sums.
ROLLING = frozenset({PAIR, STACKS, THREADS, SHORT_LIVED, READS, COMPILES, UNIT})
# What a page and a person can hold; a long run has more.
MOST_EVENTS = 200
MOST_STACKS = 4000


@dataclass(frozen=True, slots=True)
class Watched:
    """How one process was watched."""

    pid: int
    rank: int | None
    method: str
    inside: bool
    stops_ms: tuple[float, ...]
    refused: str | None
    next_step: str | None
    # Where an older program did not keep it, the pid alone must do.
    start_ticks: int | None = None
    # What its frameworks said last, by the name of the probe.
    frameworks: dict[str, JsonObject] = field(default_factory=dict)
    counted: Counted | None = None
    # Variables of its environment that may cost time; ``None``: not readable, or not kept.
    settings: dict[str, str] | None = None
    # Its part in a job of several; and the title that it gave itself.
    role: str | None = None
    title: str | None = None

    @property
    def trains(self) -> bool:
        """Whether something in it marked steps: turns of a loop may be of anything."""
        return self.counted is not None and self.counted.source not in {None, LOOP}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What `attach`, `run`, `stop` and `runs RUN` show of a recording."""

    run: Run
    seconds: float
    ticks: int
    gpus: list[Gpu]
    owned: frozenset[str]
    metrics: dict[Key, Summary]
    unknown: dict[Key, Unknown]
    events: list[Event]
    # Events that are not among these.
    more_events: int = 0
    where: tuple[SourceLine, ...] = ()
    # Whose main thread was there; ``None``: no main thread was sampled.
    where_of: Watched | None = None
    # Of the same process: what took longest to compile, and where values were read back.
    compiled: tuple[Compiled, ...] = ()
    reads: tuple[ReadBack, ...] = ()
    # Its newest trace; ``None``: none was kept with it.
    trace: LastTraceJson | None = None
    trouble: str | None = None
    # What is wrong with it, as ``monitor diagnose --json`` says it; or why that is not known.
    diagnosis: DiagnosisJson | None = None
    not_diagnosed: str | None = None

    def of(self, metric: Metric, subject: int) -> Summary | None:
        """Return one metric over the whole run."""
        return self.metrics.get(Key(metric.scope, subject, metric))

    def why_not(self, metric: Metric, subject: int) -> str | None:
        """Return why a metric has no value."""
        found = self.unknown.get(Key(metric.scope, subject, metric))
        return found.reason if found else None

    def job_gpus(self) -> list[Gpu]:
        """Return the GPUs that were the job's; all, where that is not known."""
        mine = [g for g in self.gpus if g.idx in self.owned]
        return mine or self.gpus

    @property
    def watched(self) -> list[Watched]:
        """How each process with a framework was watched, the oldest first."""
        return _watched(self.run)

    @property
    def defects(self) -> Mapping[str, int]:
        """How often something of ours failed while it was recorded, by where."""
        found: Mapping[str, int] = (self.run.info or {}).get("defects", {})
        return found

    @property
    def principal(self) -> Watched | None:
        """The process that stands for the job; ``None``: none had a framework."""
        return self.where_of or next(iter(in_order(self.run)), None)

    @property
    def trained(self) -> Trained:
        """What the job trained, and how its time went."""
        waiting = waiting_parts(self.run)
        return trained(
            (each.frameworks, None if each in waiting else each.counted)
            for each in in_order(self.run)
        )

    def why_not_trained(self, name: str) -> str:
        """Return why something of the training is not known: the last reason, where one was."""
        metric = METRICS.get(name)
        reason = None if metric is None else self.why_not(metric, self.run.id)
        return reason if reason and reason not in HARMLESS else self.trained.why_not(name)

    @property
    def not_entered(self) -> str | None:
        """Why the first process has no agent, in full, where it is not among the watched."""
        refusal = (self.run.info or {}).get("not_entered")
        return f"{refusal['what']} {refusal['next_step']}".rstrip() if refusal else None

    @property
    def gpu_problem(self) -> str | None:
        """Why no GPU was read, if none was."""
        return (self.run.info or {}).get("gpu_problem")


def summarise(path: Path, ref: str, trouble: str | None = None) -> RunSummary:
    """Return the summary of the recording that ``ref`` names."""
    with Reader.open(path) as reader:
        run = reader.find(ref)
        metrics = reader.summary(run.id, SCOPES)
        own = [s.n for k, s in metrics.items() if k.scope is Scope.MONITOR]
        end = run.ended_ms or max(
            (v.ts_ms for v in reader.latest(run.id, SCOPES).values()), default=0
        )
        events = reader.events(run.id, without=ROLLING, most=MOST_EVENTS)
        where_of, where = _where(reader, run)
        return RunSummary(
            run=run,
            seconds=max(0, end - run.started_ms) / 1000,
            ticks=max(own, default=0),
            gpus=reader.gpus(run.id),
            owned=frozenset((run.info or {}).get("gpus", ())),
            metrics=metrics,
            unknown=reader.unknown(run.id, SCOPES),
            events=events,
            more_events=reader.count_events(run.id, without=ROLLING) - len(events),
            where=where,
            where_of=where_of,
            compiled=compiled(event_data(reader, run, (COMPILED, COMPILES), where_of)),
            reads=reads(event_data(reader, run, (READS,), where_of)),
            trace=_trace(reader.last_trace(run.id)),
            trouble=trouble,
        )


def _trace(stored: StoredTraceJson | None) -> LastTraceJson | None:
    """Return what a summary says of a stored trace, and how we took it, if we did."""
    answer = None if stored is None else stored["answer"]
    if stored is None or answer is None:
        return None
    return {
        "id": stored["id"],
        "ts_ms": stored["ts_ms"],
        "taken": stored["taken"],
        "format": answer.get("format"),
        "steps": answer.get("steps"),
        "budget": answer.get("budget"),
        "step_budget": answer.get("step_budget"),
        "warnings": answer.get("warnings"),
    }


def _watched(run: Run) -> list[Watched]:
    found = []
    for entry in (run.info or {}).get("processes", []):
        # What another version wrote otherwise must not cost the rest.
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(entry, Watched))
    return found


def in_order(run: Run) -> list[Watched]:
    """Return the processes, those that stand for the job first.

    A launcher has a framework loaded, too, and neither rank nor steps: what it starts does the
    work. Turns of a loop may be of anything, as those of what evaluates beside what trains. Of a
    job of several parts that which computes for the others comes first, whoever was named.
    """
    every = _watched(run)
    part_of = _places(every)

    def place(watched: Watched) -> tuple[int, bool, float, bool, bool, bool, int]:
        rank = float("inf") if watched.rank is None else watched.rank
        counted = watched.counted or Counted()
        idles = not counted.steps, counted.source == LOOP
        begun = watched.start_ticks or 0
        return (
            part_of(watched),
            not watched.inside,
            rank,
            *idles,
            watched.pid != run.target_pid,
            begun,
        )

    return sorted(every, key=place)


def waiting_parts(run: Run) -> list[Watched]:
    """Return those that hand work to the ones that compute: their loops make no steps."""
    every = _watched(run)
    part_of = _places(every)
    first = min(map(part_of, every), default=0)
    return [each for each in every if part_of(each) > first]


def _places(every: Sequence[Watched]) -> Callable[[Watched], int]:
    """Return the place of each among the parts of a job."""
    order = Order(roles.known(each.role) for each in every)
    return lambda each: order.place(roles.known(each.role), trains=each.trains)


def parts_of(run: Run) -> list[Watched]:
    """Return the parts of a job of several, that which began it too; nobody in any other job."""
    every = _watched(run)
    named = [each for each in every if roles.known(each.role) is not None]
    root = [each for each in every if each.pid == run.target_pid and each not in named]
    return [*named, *root] if named else []


def _where(reader: Reader, run: Run) -> tuple[Watched | None, tuple[SourceLine, ...]]:
    """Return where a main thread was, most first, of the first process that was sampled."""
    for watched in in_order(run):
        if found := lines(reader, run, watched):
            return watched, found
    return None, ()


def event_data(  # noqa: PLR0913  which events, and of whom
    reader: Reader,
    run: Run,
    kinds: tuple[str, ...],
    who: Watched | None,
    since_ms: int = 0,
    *,
    most: int = MOST_STACKS,
) -> list[Mapping[str, Any]]:
    """Return what the newest events of these kinds say of one process, in their order."""
    watched = who or next(iter(in_order(run)), None)
    events = [
        event
        for kind in kinds
        for subject in (() if watched is None else subjects(reader, run, watched))
        for event in reader.events_of(run.id, kind, Scope.PROCESS, subject, most)
    ]
    events = [event for event in events if event.ts_ms >= since_ms]
    return [event.data for event in sorted(events, key=lambda e: (e.ts_ms, e.id)) if event.data]


def subjects(reader: Reader, run: Run, watched: Watched) -> list[int]:
    """Return by which numbers the store knows a process."""
    return [
        p.id
        for p in reader.processes(run.id, watched.pid)
        if watched.start_ticks in {None, p.start_ticks}
    ]


def lines(reader: Reader, run: Run, watched: Watched, since_ms: int = 0) -> tuple[SourceLine, ...]:
    """Return where the main thread of a process was, the user's own lines, most first."""
    return StackSamples.of_events(event_data(reader, run, (STACKS,), watched, since_ms)).lines()
