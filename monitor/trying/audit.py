"""What was tried, in the store: in the run that watches the job, else in one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.store import NewRun, Reader, Writer

KIND: Final = "try"
# What each pair of blocks says, for who looks on.
PAIR: Final = "try_pair"


def run_of(store: Path, key: ProcessKey) -> int | None:
    """Return the recording that watches a process now."""
    if not store.exists():
        return None
    with Reader.open(store) as reader:
        return reader.watching(*key)


def write(store: Path, run: int, text: str, data: Mapping[str, Any], kind: str = KIND) -> None:
    """Add an event to a run."""
    with Writer.open(store) as writer:
        writer.event(run, kind, text, data=data)


class Audit:
    """The events of one try; where nothing records the job a run of its own begins with them."""

    def __init__(self, store: Path, key: ProcessKey, knob: str, command: str | None) -> None:
        self.store = store
        self._key = key
        self._knob = knob
        self._command = command
        self._own: Writer | None = None

    @cached_property
    def run(self) -> int:
        """The run that they belong to."""
        found = run_of(self.store, self._key)
        if found is not None:
            return found
        self._own = Writer.open(self.store)
        new = NewRun(
            target_pid=self._key.pid,
            target_start_ticks=self._key.start_ticks,
            command=self._command,
            info={"try": self._knob},
        )
        return self._own.begin_run(new)

    def note(self, state: str, text: str, **more: Any) -> None:
        """Write down what happens: "on" with the first change, "back" or "kept" at the end."""
        self._write(KIND, text, {"knob": self._knob, "state": state, **more})

    def pair(self, text: str, **more: Any) -> None:
        """Write down what there is after a pair of blocks; nothing depends on it."""
        with suppress(Problem):
            self._write(PAIR, text, {"knob": self._knob, **more})

    def _write(self, kind: str, text: str, data: Mapping[str, Any]) -> None:
        run = self.run
        if self._own is not None:
            self._own.event(run, kind, text, data=data)
        else:
            write(self.store, run, text, data, kind)

    def facts(self) -> dict[str, Any]:
        """Return what another process needs to write the end down."""
        return {"store": str(self.store), "run": self.run, "knob": self._knob}

    def close(self) -> None:
        """End a run of its own."""
        if self._own is not None:
            self._own.end_run(self.run, "the try is over")
            self._own.close()
