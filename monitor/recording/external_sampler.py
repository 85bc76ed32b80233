"""Where the main thread is, seen from outside, as long as the agent is in no process of the job."""

from __future__ import annotations

from collections.abc import Iterable

from whyidle.agents import wire
from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.attach.outside import PySpySampler, SampledLine
from whyidle.monitor.processes.process import JobEvent
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.recording.code_lines import LINES_SHOWN, stacks_event
from whyidle.monitor.recording.tracked_process import TrackedProcess
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples

REFUSED = "outside_refused"
# A sentence may name a process: each new one has its own.
MOST_REPORTED = 4


class ExternalSampler:
    """Watches one process at a time: the first that has a framework and no agent."""

    def __init__(self, fs: ProcFs) -> None:
        self._fs = fs
        self._tracked: TrackedProcess | None = None
        self._outside: PySpySampler | None = None
        self._reported: set[str] = set()

    def tick(self, processes: Iterable[TrackedProcess]) -> list[JobEvent]:
        """Begin, go on or end; returns what happened."""
        tracked = _wanted(list(processes))
        if tracked is not self._tracked:
            self.close()
            self._tracked = tracked
            self._outside = PySpySampler(tracked.key, self._fs) if tracked is not None else None
        if tracked is None or self._outside is None:
            return []
        found = self._outside.poll()
        # A stopped process keeps its line, and that says nothing.
        events = [_keep(tracked, found)] if found and not tracked.is_stopped else []
        refused = self._outside.refused
        news = refused is not None and refused.what not in self._reported
        if refused is not None and news and len(self._reported) < MOST_REPORTED:
            self._reported.add(refused.what)
            text = f"{refused.what} {refused.next_step}".rstrip()
            events.append(JobEvent(REFUSED, tracked.key, text, "low"))
        return events

    def close(self) -> None:
        """End the child that samples."""
        if self._outside is not None:
            self._outside.close()
        self._outside, self._tracked = None, None


def _wanted(processes: list[TrackedProcess]) -> TrackedProcess | None:
    if any(tracked.link is not None for tracked in processes):
        return None
    wanted = (s for s in processes if s.has_framework and s.method == OUTSIDE and not s.is_young)
    return next(wanted, None)


def _keep(tracked: TrackedProcess, found: list[SampledLine]) -> JobEvent:
    samples = StackSamples()
    for place in found:
        # As the agent would shorten them.
        file, function = place.file[-wire.LONGEST_FILE :], place.function[: wire.LONGEST_NAME]
        samples.samples += place.samples
        samples.count(Chain((CodeLine(file, place.line, function),)), place.samples)
    tracked.outside = (samples.lines(LINES_SHOWN), int(samples.samples))
    return stacks_event(tracked.key, samples, None)
