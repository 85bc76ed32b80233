"""The line to the agent during a try: steps, pauses, and what became of the knob."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from whyidle.agents.wire import LOST
from whyidle.monitor.core.errors import Problem, TargetGone
from whyidle.monitor.link.link import Link, LinkLost
from whyidle.monitor.link.records import Gauges, LongGc, Pace, Turned
from whyidle.monitor.trying.blocks import Timeline

# The lease is renewed with each exchange; the agent reads fifty times a second at most.
BETWEEN: Final = 0.1
# The agent's thread may have to wait for its turn, or for a step to end.
PATIENCE_SECONDS: Final = 30.0


class Line:
    """Exchanges with the agent, and keeps what it says."""

    def __init__(self, link: Link, beat: Callable[[], None] = lambda: None) -> None:
        self.link = link
        self.timeline = Timeline()
        self.source: str | None = None
        # What the agent had no room for, of all kinds: when we came, and now.
        self._lost: list[float] = []
        self._turned: deque[Turned] = deque(maxlen=64)
        self._began_ns = time.monotonic_ns()
        # Called with each exchange: whoever else must hear that we live.
        self.beat = beat

    def exchange(self) -> None:
        """Take what is new; raises when the job has ended."""
        self.beat()
        try:
            records = self.link.exchange()
        except LinkLost:
            raise _ended(self.link.key.pid) from None
        for record in records:
            match record:
                case Pace():
                    self._take_pace(record)
                case Gauges() if self.link.monotonic_ns(record.t) >= self._began_ns:
                    self._lost = [*self._lost[:1], record.values.get(LOST) or 0.0]
                case LongGc(generation=2):
                    end = self.link.monotonic_ns(record.t)
                    if end >= self._began_ns:
                        self.timeline.pauses.append((end - record.ns, end))
                case Turned() if self.link.monotonic_ns(record.t) >= self._began_ns:
                    self._turned.append(record)
                case _:
                    pass

    @property
    def is_losing(self) -> bool:
        """Tell whether more comes than the agent has room for."""
        return self._lost[-1:] > self._lost[:1]

    def wait(self, seconds: float) -> None:
        """Let time pass, and stay in touch."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(BETWEEN, left))
            self.exchange()

    def ask(self, do: str, **more: object) -> Mapping[str, Any]:
        """Ask something of knobs and return the answer."""
        answers = self.link.knob_answers
        answers.clear()
        self.link.ask_of_knob(do, **more)
        # One to a question before may still be on its way: something interrupted us.
        self._until(lambda: any(asked == do for asked, _ in answers))
        return next(answer for asked, answer in answers if asked == do)

    def flush(self) -> None:
        """Have the agent tell of every step up to now."""
        self.ask("watch", on=True)
        # What it wrote before it answered.
        self.exchange()

    def turned(self, *states: str) -> Turned:
        """Wait until the knob has been in one of these states, and forget what was before."""
        self._until(lambda: self.last(*states) is not None)
        record = self.last(*states)
        assert record is not None  # noqa: S101
        self.forget()
        return record

    def last(self, *states: str) -> Turned | None:
        """Return the last record of one of these states that was not forgotten."""
        return next((x for x in reversed(self._turned) if x.state in states), None)

    def forget(self) -> None:
        """Forget what became of the knob until now."""
        self._turned.clear()

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.exchange()
        while not done():
            if time.monotonic() > deadline:
                raise Problem(
                    f"The agent in process {self.link.key.pid} did not answer for"
                    f" {PATIENCE_SECONDS:g} s: the job hardly ever lets another thread run Python.",
                    "What was changed is taken back by the agent itself. Try again later.",
                )
            self.link.wait(BETWEEN / 5)
            self.exchange()

    def _take_pace(self, record: Pace) -> None:
        end = self.link.monotonic_ns(record.end_ns)
        if end < self._began_ns:
            return
        if record.source != self.source:
            # Another kind of step: those of before do not compare.
            self.source = record.source
            self.timeline.steps.clear()
        self.timeline.add(end, record.each, record.durations)


def _ended(pid: int) -> TargetGone:
    return TargetGone(
        f"Process {pid} has ended, or its agent has: nothing of the try is left in it.",
        "See what runs with: monitor ps",
    )
