"""The interface of all ways to take a trace: ask for one, then poll for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Taken:
    """A trace that has arrived, in a private file of ours. Moments are on our own clocks."""

    framework: str
    path: Path
    # When the window began and ended, on the monotonic clock.
    began_ns: int
    ended_ns: int
    # The wall clock at its beginning.
    realtime_ns: int
    # How long the job stood still for it in total; ``None`` if unknown.
    held_ns: int | None
    # How it was taken, in words.
    how: str


class Way(Protocol):
    """One way to trace one process. Called by one thread at a time; no call waits."""

    # Its name in sentences.
    name: str

    def ask(self, seconds: float) -> str | None:
        """Ask for a trace of at most this many seconds; return why there will be none."""

    def poll(self) -> Taken | str | None:
        """Return the trace, or why it failed; ``None`` while neither is known."""

    def close(self) -> None:
        """Release everything, including a trace on its way."""
