"""What every way of taking a trace has in common: one is asked for, and comes or does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Taken:
    """A trace that has come: a file of ours, for our eyes only. Moments are on our own clocks."""

    framework: str
    path: Path
    # When the window began and ended, on the monotonic clock.
    began_ns: int
    ended_ns: int
    # The wall clock at its beginning.
    realtime_ns: int
    # How long the job stood still for it in all; ``None`` where nobody can tell.
    held_ns: int | None
    # In words: by which way.
    how: str


class Way(Protocol):
    """One way to the traces of one process. Called by one thread at a time; none of it waits."""

    # In words.
    name: str

    def ask(self, seconds: float) -> str | None:
        """Ask for a trace of at most so many seconds; returns why there will be none."""

    def poll(self) -> Taken | str | None:
        """Return the trace, or why it failed; ``None`` as long as neither is known."""

    def close(self) -> None:
        """Let go of everything, also of a trace on its way."""
