"""The outcome of attaching: the methods by name, and why one of them was refused."""

from __future__ import annotations

from dataclasses import dataclass

# The names of the methods, in the order in which they are tried.
AGENT = "agent"
REMOTE_EXEC = "remote_exec"
PTRACE = "ptrace"
OUTSIDE = "outside"
# The method of an agent that `monitor run` put into the job.
RUN = "run"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a method cannot be used here, and what to type instead."""

    what: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Rung:
    """One method of the ladder, checked without touching the process."""

    name: str
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt to enter ended. ``method`` is OUTSIDE when the agent is not in."""

    method: str
    tried: tuple[Rung, ...]
    # How long the process stood still each time, and how long it took in all.
    stops_ms: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def inside(self) -> bool:
        """Tell whether the agent is in the job."""
        return self.method != OUTSIDE

    @property
    def refusal(self) -> Refusal | None:
        """The refusal to show: that of the last method tried before staying outside."""
        refused = [r.refused for r in self.tried if r.refused is not None]
        return refused[-1] if refused else None


class NotEntered(Exception):  # noqa: N818  an answer, not a defect of ours
    """A method was tried and the agent is not in; the job is unchanged."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.what)
        self.refusal = refusal
