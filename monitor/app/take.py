"""A trace of a running process, taken now: through its agent, which goes in and out for it."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import click

from whyidle.monitor.app.entering import entered
from whyidle.monitor.core.contracts.trace import TakenJson
from whyidle.monitor.core.defaults import MOST_SERVER_SECONDS
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.interrupts import ended_by_signals
from whyidle.monitor.core.paths import database
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.link.records import Steps
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.worker import worker_of
from whyidle.monitor.store import Reader
from whyidle.monitor.traces.window import TraceWindow
from whyidle.monitor.tracing.by_agent import ByAgent
from whyidle.monitor.tracing.profiler_server import ByServer
from whyidle.monitor.tracing.scheduler import TOO_EARLY
from whyidle.monitor.tracing.space import Space, of_pid, of_run
from whyidle.monitor.tracing.taken import Taken, Way

BETWEEN: Final = 0.1
# A recording's own trace is over by then.
PATIENCE_SECONDS: Final = 15.0
# The agent reports steps once a second.
STEP_SECONDS: Final = 2.0
# Part of what was asked for; a shorter trace may be of less than a step.
SHORT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Shot:
    """A trace that was just taken, and the recording that it belongs to."""

    key: ProcessKey
    taken: Taken
    run: int | None
    # How long it was asked for, and how long the job's steps take, where the agent says.
    seconds: float
    step_ns: int | None = None

    @property
    def window(self) -> TraceWindow:
        """Return what is known of its window."""
        length_ns = self.taken.ended_ns - self.taken.began_ns
        return TraceWindow(length_ns, round(self.seconds * 1e9), self.step_ns)

    def facts(self) -> TakenJson:
        """Return how it was taken, as the store keeps it."""
        began_ms = self.taken.realtime_ns // 1_000_000
        return {
            "began_ms": began_ms,
            "ended_ms": began_ms + self.window.ns // 1_000_000,
            "held_ns": self.taken.held_ns,
            "how": self.taken.how,
            "pid": self.key.pid,
            "rank": None,
            "window": self.window.facts(),
        }


def take(pid: str, seconds: float, server: int | None, run: int | None) -> Shot:
    """Take a trace of a process; every refusal is a Problem. The job is left as it was.

    Without a run it belongs to the one that watches the process, if one does.
    """
    named = Target.named(pid)
    space = Space(database())
    check_room(space)
    with ended_by_signals():
        target = named if server is not None else worker_of(named)
        key = target.key
        run = run_of(key) if run is None else run
        owner = of_pid(key.pid) if run is None else of_run(run)
        if server is not None:
            seconds = min(seconds, MOST_SERVER_SECONDS)
            return Shot(key, _from_server(key, space, owner, server, seconds), run, seconds)
        with entered(target, "trace", say) as link:
            listener = _Listener(link)
            taken = _from_agent(listener, space, owner, seconds)
            return Shot(key, taken, run, seconds, listener.step_ns(taken, seconds))


def check_room(space: Space) -> None:
    """Raise where the disk would be full."""
    if not space.has_room():
        raise Problem(
            f"The disk under {space.folder.parent} has too little room left for a trace.",
            "Make some: monitor prune --older-than 7d",
        )


# Inside ------------------------------------------------------------------------------------------
def say(what: str) -> None:
    """Tell a person who looks on what is going on."""
    if sys.stderr.isatty():
        click.echo(what, err=True)


def run_of(key: ProcessKey) -> int | None:
    """Return the recording that watches a process."""
    if not database().exists():
        return None
    with Reader.open(database()) as reader:
        return reader.watching(*key)


class _Listener:
    """Hears what an agent says meanwhile of the job's steps."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._steps: list[Steps] = []

    def exchange(self) -> None:
        """Take what is new."""
        with contextlib.suppress(LinkLost):
            self._steps += [x for x in self.link.exchange() if isinstance(x, Steps)]

    def step_ns(self, taken: Taken, seconds: float) -> int | None:
        """Return how long a step takes; waits for a word of it where the trace is a short one."""
        deadline = time.monotonic() + STEP_SECONDS
        is_short = taken.ended_ns - taken.began_ns < SHORT * seconds * 1e9
        while is_short and not self._durations() and time.monotonic() < deadline:
            time.sleep(BETWEEN)
            self.exchange()
        durations = self._durations()
        return round(statistics.median(durations)) if durations else None

    def _durations(self) -> list[int]:
        # The agent goes over to a better source as soon as there is one.
        ours = [x for x in self._steps if x.source == self._steps[-1].source]
        return [ns for steps in ours for ns in steps.durations if ns]


def _from_agent(listener: _Listener, space: Space, owner: str, seconds: float) -> Taken:

    link = listener.link
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = _wait(ByAgent(link, space, owner), link.key.pid, seconds, listener.exchange)
        if not isinstance(found, str):
            return found
        # Another one's trace is over in a moment.
        if not found.startswith(TOO_EARLY) or time.monotonic() > deadline:
            raise _not_taken(link.key.pid, found)
        time.sleep(BETWEEN)


def _not_taken(pid: int, why: str) -> Problem:
    return Problem(
        f"No trace of process {pid} could be taken: {why}.",
        f"Watch it, traces come when they can: monitor attach {pid}",
    )


def _wait(
    way: Way, pid: int, seconds: float, exchange: Callable[[], None] = lambda: None
) -> Taken | str:
    """Wait for a trace, or why there is none; when something ends us meanwhile it is dropped."""
    try:
        exchange()
        found: Taken | str | None = way.ask(seconds)
        say(f"Taking a trace of process {pid}, of at most {seconds:g} s …")
        while found is None:
            time.sleep(BETWEEN)
            exchange()
            found = way.poll()
    except BaseException:
        way.close()
        # So that the word of it goes out.
        exchange()
        raise
    return found


def _from_server(key: ProcessKey, space: Space, owner: str, port: int, seconds: float) -> Taken:

    way = ByServer(key, port, space, owner)
    found = _wait(way, key.pid, seconds)
    if isinstance(found, str):
        raise Problem(
            f"No trace of process {key.pid} could be taken: {found}.",
            f"Without its server: monitor trace {key.pid}",
        )
    return found
