"""One process that may be entered, and how far that has come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from whyidle.monitor.attach.answers import AGENT, OUTSIDE, RUN, Outcome, Refusal
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes import roles
from whyidle.monitor.processes.process import JULIA, Identity, JobEvent, ProcessKey
from whyidle.monitor.processes.procfs import TICKS_PER_SECOND, Stat
from whyidle.monitor.processes.roles import Order, Role
from whyidle.monitor.recording.julia_records import JuliaRecords
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.recording.stats import step_times
from whyidle.monitor.recording.stats.agent_stats import MEASURED, AgentStats
from whyidle.monitor.recording.stats.code_lines import Where
from whyidle.monitor.recording.stats.totals import ProcessTotals
from whyidle.monitor.runs.training import LOOP

# A process that has just begun may end at once, or become another program: it waits.
BEGUN_SECONDS = 1.0
# After a refusal it is tried again: what barred the way (a disk, a busy thread) may pass.
TRY_AGAIN_SECONDS = (2.0, 10.0, 30.0, 120.0)
MOST_TRIES = len(TRY_AGAIN_SECONDS) + 1
# An agent that stayed so long has not gone for a reason that will make the next one go at once.
STAYED_SECONDS = 60.0

# A program that loads its framework late is not entered before it has it.
NAMED_SECONDS = 15.0

NO_AGENT = "no agent in the process"
NOT_YET = "the agent is on its way in"


@dataclass
class TrackedProcess:
    """A process of the job that runs Python or Julia."""

    key: ProcessKey
    identity: Identity
    due: float
    address: Address | None = None
    # What we do not do, whatever the process would allow.
    barred: Refusal | None = None
    tries: int = 0
    on_the_way: bool = False
    outcome: Outcome | None = None
    link: Link | None = None
    entered: float = 0.0
    # Stopped when it refused: tried again as soon as it goes on.
    was_stopped: bool = False
    is_stopped: bool = False
    # The refusal that was reported last.
    reported: str | None = None
    # As long as it may turn out to be one of many that hardly live, nothing of it is kept.
    is_young: bool = True
    held_back: list[JobEvent] = field(default_factory=list)
    # Where it was as seen from outside; ``None``: it is not, and the agent's own samples count.
    outside: Where | None = None
    # Where its other threads were, likewise; and processes that it started and that hardly live.
    threads: Where | None = None
    short_lived: Where | None = None
    # Which part of a job it is, as its stack says; ``None``: it does not.
    part: str | None = None
    # A person named it by its pid: its lines and its collector are worth an agent in any case.
    is_named: bool = False
    # Of a Julia process, into which nothing goes.
    julia: JuliaRecords | None = None
    # Since the recording began, over all of its agents.
    counted: ProcessTotals = field(default_factory=ProcessTotals)
    agent_stats: AgentStats = field(init=False)

    def __post_init__(self) -> None:
        self.agent_stats = AgentStats(self.key, self.counted)

    @property
    def has_framework(self) -> bool:
        """Tell whether there is anything to learn from inside."""
        return self.identity.has_framework

    @property
    def rank(self) -> int | None:
        """Its number among the job's equal workers, as its framework says, or its launcher.

        What starts several from one process (``mp.spawn``) leaves nothing in their environments, or
        the one number of their parent.
        """
        for facts in self.agent_stats.frameworks.latest.values():
            rank, several = facts.get("rank"), facts.get("world_size") or facts.get("processes")
            if isinstance(rank, int) and isinstance(several, int) and several > 1:
                return rank
        return None if self.identity.rank is None else self.identity.rank.rank

    @property
    def role(self) -> Role | None:
        """Its part in a job of several; ``None``: nothing says so."""
        return self.identity.role or roles.known(self.part)

    @property
    def is_wanted(self) -> bool:
        """Tell whether it is worth entering."""
        return self.has_framework or self.is_named

    @property
    def is_shown(self) -> bool:
        """Tell whether it trains, or is known from inside, by its stacks or its collector."""
        seen = (self.link, self.outside, self.julia)
        return self.is_wanted or any(each is not None for each in seen)

    @property
    def is_read_outside(self) -> bool:
        """Tell whether without an agent more is known than counters: Julia's, or its steps."""
        counted = self.agent_stats.steps.source == LOOP
        return self.link is None and (self.julia is not None or counted)

    @property
    def reading(self) -> Reading:
        """What was measured last."""
        inside = self.link is not None or self.julia is not None
        return self.agent_stats.latest if inside else self.without()

    @property
    def trains(self) -> bool:
        """Whether something in it marks its steps: turns of a loop may be of anything."""
        return self.agent_stats.steps.source not in {None, LOOP}

    def of_job(self, *, steps: bool) -> Reading:
        """Return what of it is true of the job; ``steps``: whether its steps are the job's."""
        reading = self.reading
        if steps:
            return reading
        values = {x: n for x, n in reading.values.items() if x not in step_times.MEASURED}
        return Reading(values, reading.unknown)

    @property
    def may_inject(self) -> bool:
        """Tell whether it may still be gone into, or only linked."""
        return self.is_wanted and self.tries < MOST_TRIES

    @property
    def method(self) -> str | None:
        """How the agent came in; ``None`` while that is being tried."""
        if self.link is not None and self.outcome is not None:
            by_run = self.outcome.method == AGENT and self.link.hello.get("method") == RUN
            return RUN if by_run else self.outcome.method
        if self.julia is not None or (not self.is_wanted and self.outside is not None):
            return OUTSIDE
        if self.barred is None and (
            self.outcome is None or (self.on_the_way and not self.reported)
        ):
            return None
        return OUTSIDE

    @property
    def refusal(self) -> Refusal | None:
        """Why the agent is not in."""
        if self.link is not None:
            return None
        if self.julia is not None:
            return self.julia.refusal
        return self.barred or (self.outcome.refusal if self.outcome else None)

    def look_at(self, stat: Stat) -> None:
        """Take note of how it is at this tick."""
        self.is_stopped = stat.is_stopped

    def is_due(self, now: float, stat: Stat) -> bool:
        """Tell whether to go in now, unless it is barred."""
        if self.on_the_way:
            return False
        if self.was_stopped:
            if stat.is_stopped:
                return False
            self.was_stopped, self.due = False, now
        hurries = self.outcome is None and self.tries < MOST_TRIES
        if now < self.due and not hurries:
            return False
        if self.address is not None and self.address.is_there():
            return True
        return now >= self.due and self.may_inject

    def arrived(self, outcome: Outcome, link: Link | None, now: float, stat: Stat | None) -> None:
        """Take note of what became of an attempt."""
        self.on_the_way = False
        # Two clocks: a short stop may come out as less than none.
        stops_ms = tuple(max(0.0, ms) for ms in outcome.stops_ms)
        self.outcome, self.link, self.entered = replace(outcome, stops_ms=stops_ms), link, now
        self.due = now + TRY_AGAIN_SECONDS[min(self.tries, len(TRY_AGAIN_SECONDS)) - 1]
        self.was_stopped = link is None and stat is not None and stat.is_stopped

    def left(self, now: float) -> None:
        """Begin anew: the agent has gone."""
        if now - self.entered >= STAYED_SECONDS:
            self.tries = 0
        # An agent that goes again and again is not asked at every tick.
        wait = TRY_AGAIN_SECONDS[-1] if self.tries >= MOST_TRIES else 0.0
        self.link, self.outcome, self.due = None, None, now + wait
        self.agent_stats = AgentStats(self.key, self.counted)

    def member(self) -> Member:
        """Return what the screens show of it."""
        inside = self.link is not None
        seen = self.outside or self.agent_stats.where
        where, looks = seen.lines, seen.looks
        read_line = self.agent_stats.read_line(time.monotonic_ns()) if inside else None
        if self.is_stopped:
            # Where it was before it stopped says nothing.
            where, looks, read_line = (), 0, None
        return Member(
            key=self.key,
            rank=self.rank,
            method=self.method,
            refusal=self.refusal,
            stops_ms=self.outcome.stops_ms if self.outcome else (),
            reading=self.reading,
            where=where,
            looks=looks,
            read_line=read_line,
            settled=not self.is_young,
            framework=self.agent_stats.frameworks.latest,
            steps_source=self.agent_stats.steps.source,
            settings=self.identity.settings,
            role=self.role,
            title=self.identity.title,
        )

    def without(self) -> Reading:
        """Return why nothing is known from inside; its steps may be counted from outside."""
        reason = NOT_YET if self.method is None else NO_AGENT
        reading = Reading(unknown=dict.fromkeys(MEASURED, reason))
        if self.agent_stats.steps.source == LOOP and not self.is_stopped:
            for metric in step_times.MEASURED:
                del reading.unknown[metric]
            self.agent_stats.steps.put(reading, time.monotonic_ns(), reason)
        return reading


def stepping(processes: Sequence[TrackedProcess]) -> list[TrackedProcess]:
    """Return those whose steps are the job's.

    What loops beside those that train, to evaluate or to play, makes none; nor does what only hands
    work to others.
    """
    order = order_of(processes)
    places = {each.key: order.place(each.role, trains=each.trains) for each in processes}
    mine = [each for each in processes if places[each.key] == min(places.values())]
    trains = [each for each in mine if each.trains]
    return trains or mine


def order_of(processes: Iterable[TrackedProcess]) -> Order:
    """Return the order of the parts of a job."""
    return Order(each.role for each in processes)


def runs_julia(who: Identity) -> bool:
    """Tell whether a process is read as Julia's; one of Python's may have it loaded as well."""
    return who.python is None and JULIA in (who.frameworks or {})


def lived(key: ProcessKey) -> float:
    """Return how long ago a process began; not exact in a namespace of time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - key.start_ticks / TICKS_PER_SECOND
