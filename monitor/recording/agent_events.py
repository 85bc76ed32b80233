"""What happened to the agents of a job: in words, and held back where it is not worth a row.

A job may start workers for weeks that live a few seconds each: only their number is kept. What
the job itself may have written steers no terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from whyidle.monitor.attach import precheck
from whyidle.monitor.attach.answers import AGENT, RUN, Refusal
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.naming import SETTLED_SECONDS
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.snapshot import stood_still
from whyidle.monitor.recording.tracked_process import NAMED_SECONDS, TrackedProcess

STAYS = "the agent stays for another monitor"
EXIT = "exit"
# What hello says of an agent that came with a fork.
FORK = "fork"
_WHY_GONE = {
    "detached": "the agent has left",
    "lease": "the agent took itself away: for a while it heard nothing from us",
    EXIT: "it ended by itself, and the agent with it",
    "closed": "the agent has gone: the job closed its descriptors",
    "no thread": "the agent has gone: the job could start no thread for it",
    None: "the agent has gone without a word",
}
LONGEST_REASON = 80
SEEN_FROM_OUTSIDE = (
    "Known from outside: its time on the cores, memory, files, network and GPUs. Not known: its"
    " steps, lines of code, and what it waits for."
)


def why_gone(bye: str | None) -> str:
    """Return why an agent went, as it said or as it seems."""
    return _WHY_GONE.get(bye or None) or f"the agent has gone: {short(bye)}"


def short(bye: str | None) -> str | None:
    """Return an agent's reason, which the job may have written, as a line that steers nothing."""
    if bye is None:
        return None
    said = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in bye[:LONGEST_REASON])
    return said if len(bye) <= LONGEST_REASON else f"{said}…"


def how(tracked: TrackedProcess) -> str:
    """Return how the agent came in."""
    method = tracked.method
    if method == AGENT and tracked.link is not None and tracked.link.hello.get("method") == FORK:
        return f"{who(tracked)} was forked from {tracked.identity.parent}, with the agent inside."
    if method == AGENT:
        return f"{who(tracked)} had an agent inside already."
    if method == RUN:
        return f"{who(tracked)} has the agent inside since `monitor run`."
    stops = tracked.outcome.stops_ms if tracked.outcome else ()
    stood = f"; it paused for {stood_still(stops)}" if stops else ""
    if rank_of(tracked) is not None:
        return f"{who(tracked)}: the agent went in by {method}{stood}."
    return f"The agent went into process {tracked.key.pid} by {method}{stood}."


def rank_of(tracked: TrackedProcess) -> int | None:
    """Return which one of equal workers it is, if it is one."""
    return tracked.rank


def who(tracked: TrackedProcess) -> str:
    """Return how a sentence that begins with a process begins."""
    rank = rank_of(tracked)
    return f"Process {tracked.key.pid}" if rank is None else f"Rank {rank} (pid {tracked.key.pid})"


def refused(tracked: TrackedProcess, refusal: Refusal) -> str:
    """Return why the agent is not in, and what to type while we go on watching."""
    rank = rank_of(tracked)
    begin = "" if rank is None else f"Rank {rank}: "
    step = refusal.next_step
    if tracked.is_stopped:
        step = f"Let it go on: kill -CONT {tracked.key.pid}   This monitor then goes in by itself."
    return f"{begin}{refusal.what} {step}".rstrip()


def entry(tracked: TrackedProcess, link: Link) -> dict[str, object]:
    """Return what is kept of how the agent came in."""
    stops = [round(ms, 3) for ms in (tracked.outcome.stops_ms if tracked.outcome else ())]
    seconds = tracked.outcome.seconds if tracked.outcome else 0.0
    python = link.hello.get("python")
    return {
        "method": tracked.method,
        "stops_ms": stops,
        "seconds": round(seconds, 3),
        "python": python if isinstance(python, str) else None,
    }


def why_not(target: Target, *, named: bool = False) -> Refusal | None:
    """Return why a process is not entered as it is; touches nothing.

    One that a person ``named`` is entered all the same, a little later.
    """
    refusal = precheck.refusal(target)
    if refusal is not None:
        # To observe it is what we do already.
        is_outside = refusal.next_step.endswith("--observe")
        return Refusal(refusal.what, SEEN_FROM_OUTSIDE if is_outside else refusal.next_step)
    nothing = precheck.without_framework(target)
    if nothing is None:
        return None
    later = (
        f"; {NAMED_SECONDS:.0f} s after its start in any case, to see its lines and its garbage"
        " collector"
    )
    return Refusal(nothing.what, f"It is entered as soon as it loads one{later * named}.")


# A job of many workers must not fill the screen with the same sentence.
MOST_NEWS = 4
# What agents report of the job itself: its first compilations are worth a line each.
MOST_REPORTED = 20
SHORT_LIVED, SHORT_LIVED_SECONDS = "short_lived", 60.0


class EventBuffer:
    """The events of one job that wait to be stored."""

    def __init__(self, root: ProcessKey) -> None:
        self._root = root
        self._events: list[JobEvent] = []
        self._counts: Counter[str] = Counter()
        self._short_lived, self._short_lived_at = 0, float("-inf")

    def take(self) -> list[JobEvent]:
        """Return what happened since the last call."""
        events, self._events = self._events, []
        return events

    def add(self, events: Iterable[JobEvent]) -> None:
        """Take in events of the job itself; only the first of a kind are news."""
        for event in events:
            self._counts[event.kind] += event.is_news
            news = event.is_news and self._counts[event.kind] <= MOST_REPORTED
            self._events.append(replace(event, is_news=news))

    def happened(  # noqa: PLR0913  the parts of an event
        self,
        kind: str,
        tracked: TrackedProcess,
        text: str,
        data: Mapping[str, object],
        *,
        now: float,
        severity: str = "info",
    ) -> None:
        """Take in what happened to a process; of a young one it is held back until it stays."""
        if tracked.is_young:
            event = JobEvent(kind, tracked.key, text, severity, at=now, data=data)
            tracked.held_back.append(event)
        else:
            self._keep(JobEvent(kind, tracked.key, text, severity, data=data))

    def release(self, tracked: TrackedProcess) -> None:
        """Pass on what was held back of a process."""
        for event in tracked.held_back:
            self._keep(event)
        tracked.held_back.clear()

    def forget(self, tracked: TrackedProcess) -> None:
        """Count a process that ended before anything of it was stored."""
        self._short_lived += tracked.is_young and tracked.has_framework

    def count_short_lived(self, now: float) -> None:
        """Report now and then how many processes came and went of which nothing else is kept."""
        if not self._short_lived or now - self._short_lived_at < SHORT_LIVED_SECONDS:
            return
        several = "processes" if self._short_lived > 1 else "process"
        text = (
            f"{self._short_lived} {several} with a framework lived for less than"
            f" {SETTLED_SECONDS:.0f} s: of these only the number is kept."
        )
        data = {"count": self._short_lived}
        self._events.append(JobEvent(SHORT_LIVED, self._root, text, data=data, is_news=False))
        self._short_lived, self._short_lived_at = 0, now

    def _keep(self, event: JobEvent) -> None:
        self._counts[event.kind] += 1
        self._events.append(replace(event, is_news=self._counts[event.kind] <= MOST_NEWS))
