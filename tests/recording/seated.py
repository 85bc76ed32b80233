"""The process of a puppet as a job, ticked by hand; with a fake agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tests.link.conftest import FS, Puppet
from whyidle.monitor.attach.answers import OUTSIDE, PTRACE, Outcome, Refusal, Rung
from whyidle.monitor.link.records import Stacks, Steps
from whyidle.monitor.processes.process import Identity, JobEvent, ProcessKey, describe
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.agent_manager import AgentManager
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.snapshot import Member
from whyidle.monitor.recording.stacks.turns import Told

Way = Callable[[Target], Outcome]
BUSY = Refusal("Process 1 is busy.", "Try again.")


def goes_in(target: Target) -> Outcome:
    return Outcome(PTRACE, (Rung(PTRACE),), (0.5, 0.25), 0.1)


def stays_out(target: Target) -> Outcome:
    return Outcome(OUTSIDE, (Rung(PTRACE, BUSY), Rung(OUTSIDE)))


def trainer(puppet: Puppet, **known: object) -> Identity:
    found = describe(puppet.pid, FS)
    assert found is not None
    return replace(found, **{"frameworks": {"torch": "2"}, **known})  # type: ignore[arg-type]


class Caught(Guard):
    """A guard that notes where it caught a defect; a strict one lets it through."""

    def __init__(self, *, strict: bool = False) -> None:
        self.where: list[str] = []
        self._strict = strict

    def caught(self, where: str, error: Exception) -> None:
        self.where.append(where)
        if self._strict:
            raise error


class Job:
    """The puppet's process as a job, ticked by hand."""

    def __init__(self, puppet: Puppet, way: Way, **wanted: bool) -> None:
        self.puppet = puppet
        self.tried = 0
        self.who = trainer(puppet)
        self.now = 100.0
        self.events: list[JobEvent] = []
        self.inside = AgentManager(
            Target(puppet.key, FS), enter=self._counted(way), guard=Caught(strict=True), **wanted
        )

    def _counted(self, way: Way) -> Way:
        def enter(target: Target) -> Outcome:
            self.tried += 1
            return way(target)

        return enter

    def tick(self, seconds: float = 0.0) -> Member | None:
        self.now += seconds
        stat = FS.stat(self.puppet.pid)
        alive = stat is not None and not stat.has_ended
        stats: dict[object, Stat] = {self.puppet.key: stat} if alive and stat else {}
        self.inside.tick(self.now, stats, {self.puppet.key: self.who})  # type: ignore[arg-type]
        self.events += self.inside.take_events()
        members = self.inside.members()
        return members[0] if members else None

    def until(self, enough: Callable[[Member | None], object], step: float = 0.0) -> Member | None:
        deadline = time.monotonic() + 10
        while not enough(member := self.tick(step)):
            assert time.monotonic() < deadline, (member, self.events)
            time.sleep(0.001)
        return member

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Samples:
    """What the thread that samples from outside would have seen, and who it was to sample."""

    # By process; taken once.
    seen: ClassVar[dict[ProcessKey, tuple[Stacks, int]]] = {}
    refused: Refusal | None = None
    closed = False
    watched: ClassVar[dict[ProcessKey, float]] = {}
    # Whose loops were to be read, with what else is known of its steps; and what they came to.
    uncounted: ClassVar[dict[ProcessKey, Told]] = {}
    turned: ClassVar[dict[ProcessKey, Steps]] = {}

    def __init__(self, fs: ProcFs) -> None:
        Samples.watched = {}
        Samples.uncounted = {}
        Samples.turned.clear()

    def watch(self, wanted: Mapping[ProcessKey, float]) -> None:
        Samples.watched = dict(wanted)

    def read_phases(self, at: Mapping[ProcessKey, int]) -> None:
        """Nothing marks any."""

    def take(self) -> dict[ProcessKey, tuple[Stacks, int]]:
        found = dict(Samples.seen)
        Samples.seen.clear()
        return found

    def take_threads(self) -> dict[ProcessKey, Stacks]:
        return {}

    def part(self, key: ProcessKey) -> str | None:
        return None

    def count_turns(self, wanted: Mapping[ProcessKey, Told]) -> None:
        Samples.uncounted = dict(wanted)

    def take_turns(self) -> dict[ProcessKey, Steps]:
        found = dict(Samples.turned)
        Samples.turned.clear()
        return found

    def refusals(self) -> dict[ProcessKey, Refusal]:
        return {} if Samples.refused is None else dict.fromkeys(Samples.watched, Samples.refused)

    def close(self) -> None:
        Samples.closed = True


def is_inside(member: Member | None) -> bool:
    return member is not None and member.method == PTRACE


def a_job(puppet: Puppet) -> Iterator[Job]:
    """Enter whenever it is ticked, and leave at the end of a test."""
    found = Job(puppet, goes_in)
    yield found
    found.inside.leave(0.1)
