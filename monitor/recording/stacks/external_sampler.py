"""Where main threads are, seen from outside: also beside an agent, whose own samples are biased.

An agent needs Python's lock for a sample, and gets it where the job lets go of it. What is read
from outside is not bound to such places; where it can be read, the agent's stacks are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.link.records import Stacks
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.roles import Order
from whyidle.monitor.recording.stacks.thread import StackThread
from whyidle.monitor.recording.stacks.turns import Told
from whyidle.monitor.recording.stats.code_lines import Where
from whyidle.monitor.recording.tracked_process import TrackedProcess, order_of
from whyidle.monitor.runs.summary import SHORT_LIVED, THREADS
from whyidle.monitor.runs.training import LOOP

REFUSED = "outside_refused"
# A sentence may name a process: each new one has its own.
MOST_REPORTED = 4
# The process that stands for the job, and so many of the others.
HZ, OTHERS_HZ, MOST_OTHERS = 20.0, 2.0, 15
# Of the other ranks of a job each is held against the rest: they share so many, some for each.
RANKS_HZ, MOST_OF_RANK = 40.0, 10.0
# To open a process costs more than a sample of it: of many young ones two stand for all.
MOST_YOUNG, YOUNG_HZ = 2, 20.0
# Whose loops are read: ranks turn alike.
MOST_COUNTED = 4
# How often the thread is asked, however fast the ticks are; a little early is not too late.
TAKEN_SECONDS = 0.9


class ExternalSampler:
    """Decides who is sampled from outside, and keeps what was seen."""

    def __init__(self, fs: ProcFs, root: ProcessKey | None = None) -> None:
        self._fs = fs
        self._root = root
        self._thread = StackThread(fs)
        self._watched: dict[ProcessKey, TrackedProcess] = {}
        self._reported: set[str] = set()
        self._taken = 0.0

    def tick(
        self, processes: Iterable[TrackedProcess], traced: Mapping[ProcessKey, float]
    ) -> list[JobEvent]:
        """Begin, go on or end; returns what happened. ``traced``: how long steps take by traces."""
        processes = list(processes)
        order = order_of(processes)
        wanted = sorted(filter(_is_wanted, processes), key=lambda x: self._place(x, order))
        wanted = wanted[: MOST_OTHERS + 1]
        if wanted:
            # Workers that are started anew and anew never live long enough to be kept one by one.
            wanted += [each for each in processes if each.is_young][:MOST_YOUNG]
        now = time.monotonic()
        events = self._take() if now - self._taken >= TAKEN_SECONDS else []
        for gone in self._watched.keys() - {tracked.key for tracked in wanted}:
            events += _end(self._watched.pop(gone))
        self._watched = {tracked.key: tracked for tracked in wanted}
        self._thread.watch(_rates(list(self._watched.values())))
        marked = {key: tracked.agent_stats.phase_at for key, tracked in self._watched.items()}
        self._thread.read_phases({key: at for key, at in marked.items() if at is not None})
        uncounted = [each for each in self._watched.items() if _is_uncounted(each[1])]
        self._thread.count_turns(
            {
                key: Told(traced.get(key), *tracked.agent_stats.turned)
                for key, tracked in uncounted[:MOST_COUNTED]
            }
        )
        return events + self._news()

    def close(self) -> list[JobEvent]:
        """Sample no more; returns what has not been kept yet."""
        self._thread.close()
        events = self._take()
        for tracked in self._watched.values():
            # What an agent says as it leaves is of the same time: it stays left out.
            events += _due(tracked, time.monotonic_ns(), ending=True)
        self._watched = {}
        return events

    def _place(
        self, tracked: TrackedProcess, order: Order
    ) -> tuple[int, float, bool, bool, bool, bool, int, int]:
        """Order them as readers do: the first stands for the job, and a launcher never steps."""
        key, source = tracked.key, tracked.agent_stats.steps.source
        number = float("inf") if tracked.rank is None else tracked.rank
        idles = source is None, source == LOOP
        is_other, loads_none = key != self._root, not tracked.has_framework
        part = order.place(tracked.role, trains=tracked.trains)
        return part, number, *idles, is_other, loads_none, key.start_ticks, key.pid

    def _take(self) -> list[JobEvent]:
        events: list[JobEvent] = []
        now_ns = time.monotonic_ns()
        self._taken = now_ns / 1e9
        for key, (stacks, torn) in self._thread.take().items():
            if (tracked := self._watched.get(key)) is not None:
                if tracked.is_young:
                    self._take_young(stacks, now_ns)
                    continue
                tracked.outside = tracked.outside or Where(key, OUTSIDE)
                tracked.outside.take(stacks, now_ns, torn)
        for key, stacks in self._thread.take_threads().items():
            if (tracked := self._watched.get(key)) is not None:
                tracked.threads = tracked.threads or Where(key, OUTSIDE, THREADS)
                tracked.threads.take(stacks, now_ns)
        self._take_turns()
        for key, tracked in self._watched.items():
            tracked.part = self._thread.part(key) or tracked.part
            if tracked.outside is not None:
                tracked.outside.look_back(now_ns)
            events += _due(tracked, now_ns, ending=False)
        return events

    def _take_turns(self) -> None:
        for key, steps in self._thread.take_turns().items():
            if (tracked := self._watched.get(key)) is not None:
                tracked.agent_stats.take([steps], lambda t: t)

    def _take_young(self, stacks: Stacks, now_ns: int) -> None:
        """Keep where processes were that may end at once, with the one that stands for the job."""
        first = next((each for each in self._watched.values() if not each.is_young), None)
        if first is not None:
            first.short_lived = first.short_lived or Where(first.key, OUTSIDE, SHORT_LIVED)
            first.short_lived.take(stacks, now_ns)

    def _news(self) -> list[JobEvent]:
        events = []
        for key, refusal in self._thread.refusals().items():
            tracked = self._watched.get(key)
            if tracked is None or tracked.is_young:
                continue
            events += _end(tracked)
            news = refusal.what not in self._reported and len(self._reported) < MOST_REPORTED
            # Beside an agent its own samples go on: nothing is missing.
            if news and tracked.link is None and tracked.method == OUTSIDE:
                self._reported.add(refusal.what)
                text = f"{refusal.what} {refusal.next_step}".rstrip()
                events.append(JobEvent(REFUSED, key, text, "low"))
        return events


def _is_wanted(tracked: TrackedProcess) -> bool:
    """Tell whether it trains, or is one of Python's that a job may wait for: a pool's, a server."""
    runs_python = tracked.identity.python is not None or tracked.link is not None
    return not tracked.is_young and (tracked.has_framework or runs_python)


def _is_uncounted(tracked: TrackedProcess) -> bool:
    """Tell whether it trains, and nothing better than its loops counts its steps."""
    source = tracked.agent_stats.steps.source
    return tracked.has_framework and not tracked.is_young and source in {None, LOOP}


def _rates(watched: Sequence[TrackedProcess]) -> dict[ProcessKey, float]:
    """Return how often each is sampled, the first of them most often."""
    settled = [each for each in watched if not each.is_young]
    # A loader's workers have the rank of whom they load for, who came first.
    leaders = {each.rank: each.key for each in reversed(settled) if each.rank is not None}
    others = set(leaders.values()) - {each.key for each in settled[:1]}
    shared = min(MOST_OF_RANK, RANKS_HZ / max(1, len(others)))
    rates = {each.key: YOUNG_HZ if each.is_young else OTHERS_HZ for each in watched}
    rates |= dict.fromkeys(others, max(OTHERS_HZ, shared))
    return rates | {each.key: HZ for each in settled[:1]}


def _end(tracked: TrackedProcess) -> list[JobEvent]:
    """Keep what is left; from then on an agent's own samples count again."""
    events = _due(tracked, time.monotonic_ns(), ending=True)
    tracked.outside = tracked.threads = tracked.short_lived = None
    return events


def _due(tracked: TrackedProcess, now_ns: int, *, ending: bool) -> list[JobEvent]:
    kept = (tracked.outside, tracked.threads, tracked.short_lived)
    return [e for each in kept if each is not None for e in each.events(now_ns, ending=ending)]
