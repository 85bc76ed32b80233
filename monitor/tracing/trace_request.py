"""The last trace that a person requested: like any other, but regardless of the share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.control.asked import Asked, State

# How long to try after the first opportunity: the agent gives the job a pause between two traces.
PATIENCE_SECONDS: Final = 30.0


class TraceRequest:
    """One at a time; ``progress`` is what the person sees."""

    def __init__(self) -> None:
        self.progress = Asked()
        # ``None``: a length that suits the job's steps.
        self.seconds: float | None = None
        self._until: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Tell whether it is still to be taken."""
        return self.progress.state is State.WAITING

    def ask(self, at_ms: int, seconds: float | None) -> None:
        """Begin a new request."""
        self.seconds = seconds
        self._until = None
        self.progress = Asked(
            State.WAITING, "A trace is taken as soon as it can be.", asked_ms=at_ms
        )

    def is_late(self, now: float) -> bool:
        """Tell whether it has been tried for long enough."""
        if self._until is None:
            self._until = now + PATIENCE_SECONDS
        return now >= self._until

    def waits(self, why: str) -> None:
        """Note that it must be tried again."""
        self._is(State.WAITING, f"A trace is taken as soon as it can be: {why}.")

    def taking(self, pid: int, seconds: float) -> None:
        """Note that it is being taken."""
        self._is(State.TAKING, f"A trace of process {pid} is taken, of at most {seconds:.2g} s.")

    def reading(self) -> None:
        """Note that the file has arrived."""
        self._is(State.READING, "The trace is here and is being read.")

    def kept(self, trace: int, what: str) -> None:
        """Note that it is in the store."""
        self.progress = replace(
            self.progress, state=State.KEPT, what=what, next_step="", trace=trace
        )

    def refused(self, what: str, next_step: str = "") -> None:
        """Note that there will be none."""
        self._is(State.REFUSED, what, next_step)

    def ends(self, what: str) -> None:
        """Note that there will be none, unless it is already over."""
        if not self.progress.is_over:
            self.refused(what)

    def _is(self, state: State, what: str, next_step: str = "") -> None:
        self.progress = replace(self.progress, state=state, what=what, next_step=next_step)
