"""What a recording shows while it runs: nothing, plain lines, or JSON lines."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import inside, jsonl, plain

# However fast the recording ticks, nobody reads more than this.
LINES_PER_SECOND = 1.0
# A sentence in which only a number changed is not news.
_NUMBERS = re.compile(r"\d+")


class Quiet:
    """Shows nothing."""

    def tick(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class JsonLines:
    """One JSON object per tick."""

    def tick(self, snapshot: Snapshot) -> None:
        """Write one object."""
        print(jsonl.line(jsonl.tick(snapshot)), flush=True)  # noqa: T201

    def close(self) -> None:
        """Do nothing: the summary follows."""


class PlainLines:
    """One line per second, and what happened."""

    def __init__(self, *, everything: bool, out: TextIO | None = None) -> None:
        self._everything = everything
        self._out = out or sys.stdout
        self._last = float("-inf")
        self._trouble: str | None = None
        self._is_watched = False

    def tick(self, snapshot: Snapshot) -> None:
        """Write a line when one is due."""
        if snapshot.ticks == 1:
            self._say(f"Run {snapshot.run}: watching {plain.who(snapshot.identity)}")
            self._watched(snapshot)
            self._say(snapshot.gpu_problem or f"GPUs shown: {snapshot.owned.how}")
        elif not self._is_watched and not inside.is_on_the_way(snapshot):
            self._watched(snapshot)
        for event in plain.news(snapshot):
            self._say(f"  {event.marked}")
        trouble = _NUMBERS.sub("", snapshot.trouble) if snapshot.trouble else None
        if trouble != self._trouble:
            self._trouble = trouble
            self._say(f"  ! {snapshot.trouble or 'The store works again.'}")
        if snapshot.elapsed - self._last >= 0.95 / LINES_PER_SECOND:
            self._last = snapshot.elapsed
            self._say(plain.tick(snapshot, everything=self._everything))

    def _watched(self, snapshot: Snapshot) -> None:
        self._is_watched = not inside.is_on_the_way(snapshot)
        self._say(f"Watched: {inside.how(snapshot)}")

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def close(self) -> None:
        """Do nothing: the summary follows."""
