"""What a person asks of a recording: when it begins, and over its socket while it runs.

Requests are answered in the recorder's own thread, between two ticks: a trace, how far it has come,
a label. Nothing else is done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.control.asked import short
from whyidle.monitor.control.server import Server
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.defaults import MOST_TRACE_SECONDS
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.agent_manager import OBSERVED, AgentManager
from whyidle.monitor.recording.traces import Traces
from whyidle.monitor.store import Writer
from whyidle.monitor.store.labels import new_label
from whyidle.monitor.tracing.policy import SETTLED_SECONDS, SHARE


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    target: Target
    hz: float = 1.0
    label: str | None = None
    # Nothing of ours goes into the job.
    observe: bool = False
    # Processes of other users than the target's are entered, too.
    any_user: bool = False
    # The agent comes with the job: it is waited for before a process is entered from outside.
    brought: bool = False
    # Of the job's time, at most, for traces that nobody asked for; none are taken at 0.
    trace_share: float = SHARE
    # So long after the agent has come a job is taken to have settled: then a trace may be taken.
    settled: float = SETTLED_SECONDS


class Requests:
    """Answers what is asked of one recording."""

    def __init__(
        self, run: int, target: ProcessKey, writer: Writer, inside: AgentManager, traces: Traces
    ) -> None:
        self._run = run
        self._target = target
        self._writer = writer
        self._agents = inside
        self._traces = traces

    def listen(self) -> Server:
        """Return the socket on which this is asked; whatever is against it is an ``OSError``."""
        return Server.open(self._writer.path, self._run, self.answer)

    def answer(self, asked: Mapping[str, Any]) -> JsonObject:
        """Do what is asked for; what cannot be done is a ``Problem``."""
        match asked.get("do"):
            case "trace":
                return self._trace(_seconds(asked.get("seconds")))
            case "state":
                return self._state()
            case "label":
                return self._label(asked.get("label"))
            case other:
                raise UsageProblem(
                    f"The recorder of run {self._run} cannot do {short(repr(other))}.",
                    "Use the same version on both ends.",
                )

    def _trace(self, seconds: float | None) -> JsonObject:
        refusal = self._barred()
        if refusal is not None:
            raise Problem(f"No trace: {refusal.what}", refusal.next_step)
        self._traces.ask(time.monotonic(), seconds)
        return self._progress()

    def _state(self) -> JsonObject:
        if self._traces.request.is_waiting and (refusal := self._barred()) is not None:
            self._traces.request.refused(f"No trace: {refusal.what}", refusal.next_step)
        return self._progress()

    def _progress(self) -> JsonObject:
        return {"trace": self._traces.request.progress.as_json()}

    def _label(self, text: object) -> JsonObject:
        if not isinstance(text, str):
            raise UsageProblem("A label is a text.", f"monitor runs {self._run} --label NAME")
        label = new_label(text)
        self._writer.describe_run(self._run, label=label)
        return {"label": label or ""}

    def _barred(self) -> Refusal | None:
        """Return why no process of the job will give a trace; ``None`` where one may."""
        processes = [tracked for tracked in self._agents.processes() if tracked.has_framework]
        pid = self._target.pid
        running = [
            tracked for tracked in processes if tracked.link is not None and not tracked.is_stopped
        ]
        if running or any(tracked.method is None for tracked in processes):
            return None
        if any(tracked.link is not None for tracked in processes):
            return Refusal("The job is stopped.", f"Let it go on: kill -CONT {pid}")
        refusal = next(
            (tracked.refusal for tracked in processes if tracked.refusal), self._agents.not_entered
        )
        if refusal is None or refusal.next_step:
            return refusal
        step = f"Have the agent go in for one trace: monitor trace {pid}"
        return Refusal(
            refusal.what, step if refusal == OBSERVED else f"See why: monitor doctor {pid}"
        )


def _seconds(asked: object) -> float | None:
    """Return how long a trace is to be; ``None`` where that is left to us."""
    if asked is None:
        return None
    if isinstance(asked, (int, float)) and type(asked) is not bool and 0 < asked < math.inf:
        return float(min(asked, MOST_TRACE_SECONDS))
    raise UsageProblem(
        "A trace takes a number of seconds.", "Ask for one of 1 s, or leave that out."
    )
