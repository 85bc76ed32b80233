"""Which processes of the job have an agent: enters them, reads its records, leaves them.

A tick does nothing here that waits: a thread of its own (``attach_queue``) enters processes, and
the links only take what is there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import Outcome, Refusal
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.channel import Address
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.link.records import Stacks
from whyidle.monitor.processes.naming import SETTLED_SECONDS
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey, user_of
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import agent_events
from whyidle.monitor.recording.agent_events import EventBuffer
from whyidle.monitor.recording.attach_queue import Arrival, AttachQueue, outside
from whyidle.monitor.recording.julia_records import JuliaRecords
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.recording.stacks.external_sampler import ExternalSampler
from whyidle.monitor.recording.stats.figures import put_job
from whyidle.monitor.recording.stats.totals import has_any
from whyidle.monitor.recording.tracked_process import (
    BEGUN_SECONDS,
    NAMED_SECONDS,
    TrackedProcess,
    lived,
    runs_julia,
    stepping,
)

MOST_MEMBERS = 64
ENTERED, REFUSED, LEFT = "agent_entered", "agent_refused", "agent_left"
OBSERVED = Refusal("Only observed: no agent goes into the job.")
# Each entry takes a tenth of a second of a core, and a loader may have twenty workers.
MOST_ALIKE = 2
STOOD_FOR = Refusal(f"{MOST_ALIKE} workers of its kind have an agent, and stand for it.")
# Where a defect is counted.
AN_AGENT = "an agent"
EXIT_SECONDS = 10.0
# An import of a framework takes so long, and the agent comes at its end.
BROUGHT_SECONDS = 5.0

NOT_TRACED: Mapping[ProcessKey, float] = MappingProxyType({})


class AgentManager:
    """The agents of one job. ``tick`` first, then what it came to."""

    def __init__(  # noqa: PLR0913  what the user wants, by name
        self,
        target: Target,
        *,
        observe: bool = False,
        any_user: bool = False,
        brought: bool = False,
        enter: Callable[[Target], Outcome] = ladder.enter,
        guard: Guard,
    ) -> None:
        self._guard = guard
        self._target = target
        self._root, self._fs = target.key, target.fs
        self._observe = observe
        self._patience = BROUGHT_SECONDS if brought else 0.0
        self._any_user = any_user
        # The job's user as it was last.
        self._uid = target.owner
        self._processes: dict[ProcessKey, TrackedProcess] = {}
        self._queue = AttachQueue(target.fs, enter)
        self._external = ExternalSampler(target.fs, target.key)
        self._events = EventBuffer(target.key)
        self._began_ns = time.monotonic_ns()
        self._now = self._began_ns / 1e9
        self._readings: dict[ProcessKey, Reading] = {}
        # What processes had done that are no longer here.
        self._gone: dict[ProcessKey, Mapping[str, Any]] = {}
        # The job's first process as its agent left it; a short job has nothing else to show.
        self._last: Member | None = None
        # Why the job's first process is not entered as it is; said once.
        self.not_entered: Refusal | None = None
        self._was_judged = False
        # What the agent of the first process said at last.
        self.last_word: str | None = None

    def tick(
        self,
        now: float,
        stats: Mapping[ProcessKey, Stat],
        known: Mapping[ProcessKey, Identity],
        traced: Mapping[ProcessKey, float] = NOT_TRACED,
    ) -> None:
        """Take in what is new; start with the processes whose turn it is.

        ``traced``: how many seconds a step takes by the last trace.
        """
        self._now, self._readings = now, {}
        self._track(now, stats, known)
        self._want_named(now, stats, known)
        for arrival in self._queue.arrivals():
            self._arrived(arrival, stats)
        # What one process says must not cost the others.
        self._guard.each(
            AN_AGENT,
            list(self._processes),
            lambda key: self._tend(self._processes[key], now, stats.get(key)),
        )
        self._judge(stats, known)
        self._say_if_hanging(stats)
        self._events.count_short_lived(now)
        self._events.add(self._external.tick(self._processes.values(), traced))

    def _tend(self, tracked: TrackedProcess, now: float, stat: Stat | None) -> None:
        if stat is not None:
            tracked.look_at(stat)
            self._grow(tracked)
        if tracked.link is not None:
            self._read(tracked, tracked.link)
        elif stat is not None and tracked.julia is not None:
            self._read_julia(tracked, tracked.julia)
        elif stat is None and not tracked.on_the_way:
            self._forget(tracked)
        elif stat is not None and tracked.is_due(now, stat) and self._may_enter(tracked):
            self._queue.ask(tracked.key, inject=tracked.may_inject)
            tracked.tries += 1
            tracked.on_the_way = True

    def members(self) -> tuple[Member, ...]:
        """Return each process that is shown, the oldest first."""
        processes = sorted(self._processes.values(), key=lambda tracked: _age(tracked.key))
        return tuple(s.member() for s in processes if s.is_shown)

    def last_members(self) -> tuple[Member, ...]:
        """Return the job's first process as it was when its agent left, however young."""
        return () if self._last is None else (replace(self._last, settled=True),)

    def readings(self) -> dict[ProcessKey, Reading]:
        """Return what the agents measured since the last tick, or why there is nothing."""
        shown = (s for s in self._processes.values() if s.is_shown)
        outside = (s for s in shown if s.link is None and s.julia is None)
        return {**{tracked.key: tracked.without() for tracked in outside}, **self._readings}

    def has_settled(self, key: ProcessKey) -> bool:
        """Tell whether an agent reports on a process that has lived long enough to be kept."""
        return (
            key in self._readings and key in self._processes and not self._processes[key].is_young
        )

    def put_job(self, reading: Reading) -> None:
        """Put what is true of the whole job."""
        inside = [tracked for tracked in self._processes.values() if tracked.link is not None]
        agents = len(inside)
        inside += [tracked for tracked in self._processes.values() if tracked.is_read_outside]
        # A launcher has no rank, and knows nothing of steps.
        inside.sort(
            key=lambda tracked: (
                tracked.rank is None,
                tracked.rank or 0,
            )
        )
        steps = stepping(inside)
        put_job(reading, [tracked.of_job(steps=tracked in steps) for tracked in inside], agents)

    def counted(self) -> dict[ProcessKey, Mapping[str, Any]]:
        """Return what each process has done since the recording began, also those that ended."""
        ours = ((key, tracked.counted.as_json()) for key, tracked in self._processes.items())
        return {**self._gone, **{key: sums for key, sums in ours if has_any(sums)}}

    def processes(self) -> list[TrackedProcess]:
        """Return each process that may be entered, and how far we have come with it."""
        return list(self._processes.values())

    def tell(self, due: Callable[[], Mapping[str, object] | None]) -> None:
        """Tell each process what was found, for callbacks in its own code, when it is due."""
        hears = any(tracked.link is not None for tracked in self._processes.values())
        if hears and (said := due()) is not None:
            self._each_inside(lambda _, link: link.tell(said))

    def take_events(self) -> list[JobEvent]:
        """Return what happened since the last call."""
        return self._events.take()

    def renew(self, key: ProcessKey) -> None:
        """Begin anew with a process that runs another program now."""
        self._was_judged, self.not_entered = False, None
        tracked = self._processes.get(key)
        if tracked is not None and tracked.link is None and not tracked.on_the_way:
            del self._processes[key]

    def leave(self, seconds: float) -> None:
        """Ask every agent to go, and take the last records of each, also of the dead."""
        # First: those of the last tick are stored, whatever becomes of the rest.
        self._readings = {}
        deadline = time.monotonic() + seconds
        self._guard.attempt(AN_AGENT, lambda: self._events.add(self._external.close()))
        for arrival in self._queue.close(seconds / 2):
            self._guard.attempt(AN_AGENT, partial(self._arrived, arrival, {}))
        for tracked in list(self._processes.values()):
            if (julia := tracked.julia) is not None:
                self._guard.attempt(AN_AGENT, partial(self._read_julia, tracked, julia))
                julia.close()
        self._each_inside(lambda _, link: link.ask_to_leave())
        while links := self._each_inside(self._read):
            if time.monotonic() >= deadline:
                break
            links[0].wait(0.01)
        late = "the agent did not answer in time and will go by itself"
        self._each_inside(lambda tracked, _: self._part(tracked, late))
        self._events.count_short_lived(float("inf"))

    # Inside --------------------------------------------------------------------------------------
    def _each_inside(self, do: Callable[[TrackedProcess, Link], None]) -> list[Link]:
        """Do this with each process that has an agent; return the links with which it went well.

        What one process says must not cost the others.
        """
        well = [
            tracked
            for tracked in list(self._processes.values())
            if (link := tracked.link) is not None
            and self._guard.attempt(AN_AGENT, partial(do, tracked, link))
        ]
        # Some have just been closed.
        return [tracked.link for tracked in well if tracked.link is not None]

    def _track(
        self, now: float, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        taken = Counter(tracked.is_shown for tracked in self._processes.values())
        for key in sorted(stats.keys() & known.keys(), key=_age):
            who = known[key]
            if (tracked := self._processes.get(key)) is not None:
                had_framework, tracked.identity = tracked.has_framework, who
                if tracked.has_framework and not had_framework:
                    tracked.due = max(tracked.due, now + self._patience)
            elif (who.python is not None or runs_julia(who)) and taken[
                shown := who.has_framework or runs_julia(who)
            ] < MOST_MEMBERS:
                taken[shown] += 1
                young = 0.0 if key == self._root else BEGUN_SECONDS - lived(key)
                tracked = TrackedProcess(key, who, now + max(0.0, young, self._patience))
                tracked.address = None if self._observe else Address.of(key, self._fs)
                tracked.barred = self._barred(tracked)
                if runs_julia(who):
                    tracked.julia = JuliaRecords(Target(key, self._fs))
                self._processes[key] = tracked

    def _want_named(
        self, now: float, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        """Enter the process that a person named, also where no framework of ours is in the job."""
        tracked = self._processes.get(self._root)
        if tracked is None or self._patience or tracked.is_wanted or tracked.link is not None:
            return
        if not stats.keys() <= known.keys() or self._may_load_one(now, stats):
            # Whoever only starts the one that trains is left alone.
            return
        is_python = tracked.identity.python is not None and tracked.identity.frameworks is not None
        others = any(each.has_framework for each in self._processes.values())
        if is_python and not others and lived(self._root) >= NAMED_SECONDS:
            tracked.is_named, tracked.due = True, now

    def _may_load_one(self, now: float, stats: Mapping[ProcessKey, Stat]) -> bool:
        """Tell whether a process that the named one has just started may load a framework yet."""
        young = (
            each.identity.python is not None and lived(key) < NAMED_SECONDS
            for key, each in self._processes.items()
            if key != self._root and key in stats
        )
        return now - self._began_ns / 1e9 < NAMED_SECONDS and any(young)

    def _grow(self, tracked: TrackedProcess) -> None:
        """Keep what was held back of a process that has turned out to stay."""
        tracked.is_young = tracked.key != self._root and lived(tracked.key) < SETTLED_SECONDS
        if not tracked.is_young:
            self._events.release(tracked)

    def _forget(self, tracked: TrackedProcess) -> None:
        self._events.forget(tracked)
        sums = tracked.counted.as_json()
        if not tracked.is_young and has_any(sums) and len(self._gone) < MOST_MEMBERS:
            self._gone[tracked.key] = sums
        if tracked.julia is not None:
            tracked.julia.close()
        del self._processes[tracked.key]

    def _say_if_hanging(self, stats: Mapping[ProcessKey, Stat]) -> None:
        """Go on outside with those that wait for a way in that does not end."""
        refusal = self._queue.hangs()
        if refusal is None:
            return
        for tracked in [tracked for tracked in self._processes.values() if tracked.on_the_way]:
            if tracked.key not in stats:
                self._forget(tracked)
            elif tracked.is_wanted:
                tracked.outcome = outside(refusal)
                self._refused(tracked, refusal)

    def _judge(
        self, stats: Mapping[ProcessKey, Stat], known: Mapping[ProcessKey, Identity]
    ) -> None:
        """Say why the first process has no agent, where it is not tracked."""
        tracked, who = self._processes.get(self._root), known.get(self._root)
        seen = tracked is not None and (tracked.link is not None or tracked.julia is not None)
        if tracked is not None and (seen or tracked.is_wanted):
            self.not_entered = None
        elif not self._was_judged and self._root in stats and not (who and who.has_framework):
            self._was_judged = True
            self.not_entered = agent_events.why_not(self._target.anew(), named=not self._patience)
            if self._observe:
                self.not_entered = OBSERVED

    def _barred(self, tracked: TrackedProcess) -> Refusal | None:
        pid = tracked.key.pid
        if self._observe:
            return OBSERVED
        if not self._any_user and self._fs.owner(pid) != self._job_user():
            return Refusal(
                f"Process {pid} belongs to another user ({user_of(self._fs, pid)}) than the job.",
                f"To enter it too: monitor attach {self._root.pid} --any-user",
            )
        return None

    def _may_enter(self, tracked: TrackedProcess) -> bool:
        """Judge this anew before each attempt: its user, or the job's, may have changed."""
        tracked.barred = self._barred(tracked) or self._stood_for(tracked)
        return tracked.barred is None

    def _stood_for(self, tracked: TrackedProcess) -> Refusal | None:
        """Return why no more of the processes that one has forked are entered.

        Those that train are ranks, and each is entered; an agent that is there costs nothing.
        """
        is_there = tracked.address is not None and tracked.address.is_there()
        if is_there or tracked.tries or not self._is_forked(tracked):
            return None
        alike = (
            each
            for each in self._processes.values()
            if each.identity.parent == tracked.identity.parent
            and (each.tries or each.link is not None)
            and not each.trains
        )
        return STOOD_FOR if sum(map(self._is_forked, alike)) >= MOST_ALIKE else None

    def _is_forked(self, tracked: TrackedProcess) -> bool:
        """Tell whether it goes on where another process of the job was, as loaders' workers do."""
        who = tracked.identity
        return any(
            each.identity.arguments == who.arguments
            for key, each in self._processes.items()
            if key.pid == who.parent and each.has_framework
        )

    def _job_user(self) -> int | None:
        """Return who the job's first process belongs to now: a launcher may change its user."""
        pid, stat = self._root.pid, self._fs.stat(self._root.pid)
        if stat is not None and stat.start_ticks == self._root.start_ticks:
            now = self._fs.owner(pid)
            self._uid = self._uid if now is None else now
        return self._uid

    def _arrived(self, arrival: Arrival, stats: Mapping[ProcessKey, Stat]) -> None:
        tracked = self._processes.get(arrival.key)
        if tracked is None:
            if arrival.link is not None:
                arrival.link.close()
            return
        stat = stats.get(tracked.key)
        tracked.arrived(arrival.outcome, arrival.link, self._now, stat)
        if arrival.link is not None:
            entry = agent_events.entry(tracked, arrival.link)
            self._events.happened(ENTERED, tracked, agent_events.how(tracked), entry, now=self._now)
        elif tracked.is_wanted and (refusal := tracked.refusal) is not None:
            self._refused(tracked, refusal)

    def _refused(self, tracked: TrackedProcess, refusal: Refusal) -> None:
        if refusal.what != tracked.reported:
            tracked.reported = refusal.what
            text, data = agent_events.refused(tracked, refusal), {"next_step": refusal.next_step}
            self._events.happened(REFUSED, tracked, text, data, now=self._now, severity="low")

    def _read(self, tracked: TrackedProcess, link: Link) -> None:
        """Take what an agent has written."""
        now_ns = time.monotonic_ns()

        def moment(t: int) -> int:
            # Whatever a job says: nothing happens after now.
            return min(now_ns, link.monotonic_ns(t))

        lost = False
        try:
            records = link.exchange()
        except LinkLost:
            records, lost = [], True
        # An agent that was there before us has records of a time that is not of this run.
        ours = [record for record in records if moment(record.t) >= self._began_ns]
        if tracked.outside is not None:
            ours = [record for record in ours if not isinstance(record, Stacks)]
        tracked.agent_stats.take(ours, moment, link.damaged)
        fresh = tracked.agent_stats.reading(now_ns, stopped=tracked.is_stopped)
        if fresh.values or fresh.unknown:
            self._readings[tracked.key] = fresh
        if not tracked.is_young:
            self._events.add(tracked.agent_stats.events(now_ns))
        if lost:
            self._part(
                tracked, agent_events.STAYS if link.stays else agent_events.why_gone(link.bye)
            )

    def _read_julia(self, tracked: TrackedProcess, julia: JuliaRecords) -> None:
        """Take what is read of a Julia process from outside."""
        now_ns = time.monotonic_ns()
        tracked.agent_stats.take(julia.take(now_ns), lambda t: min(now_ns, t))
        fresh = tracked.agent_stats.reading(now_ns, stopped=tracked.is_stopped)
        if fresh.values or fresh.unknown:
            fresh.unknown |= julia.unknown
            self._readings[tracked.key] = fresh
        if not tracked.is_young:
            self._events.add(tracked.agent_stats.events(now_ns))

    def _part(self, tracked: TrackedProcess, why: str) -> None:
        """Close the link to an agent; its last records are kept."""
        link = tracked.link
        if link is None:
            return
        if not tracked.is_young:
            self._events.add(tracked.agent_stats.events(time.monotonic_ns(), ending=True))
        said = f"{agent_events.who(tracked)}: {why}."
        self._events.happened(
            LEFT, tracked, said, {"bye": agent_events.short(link.bye)}, now=self._now
        )
        if tracked.key == self._root:
            self.last_word, self._last = link.bye, tracked.member()
        stat = self._fs.stat(tracked.key.pid)
        if stat is None or stat.has_ended or stat.start_ticks != tracked.key.start_ticks:
            link.remove_leftovers()
        link.sweep()
        link.close()
        tracked.left(self._now)
        if link.bye == agent_events.EXIT:
            # Its Python is about to end: there is nothing to go into.
            tracked.due += EXIT_SECONDS


def _age(key: ProcessKey) -> tuple[int, int]:
    return key.start_ticks, key.pid
