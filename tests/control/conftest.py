"""A recorder that is this process: a run in a store, and a socket that answers on a thread."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.control.asked import Asked, State
from whyidle.monitor.control.server import Server
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer


def descriptors() -> int:
    """Return how many this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Puppet:
    """What a recorder does with a question, as a test sets it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.outcome = Asked(State.KEPT, "A trace of 0.25 s.", "", 3, 1000)

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        if asked.get("do") == "label":
            return {"label": asked["label"]}
        if asked.get("do") == "break":
            raise ZeroDivisionError("oops")
        if asked.get("do") not in {"trace", "state"}:
            raise UsageProblem("That is not done.", "Ask for something else.")
        return {"trace": self.outcome.as_json()}


class Recorder(Puppet):
    """A run that is being recorded; ``serving`` answers while it lasts."""

    def __init__(self, folder: Path, **row: Any) -> None:
        super().__init__()
        self.store = folder / DATABASE
        with Writer.open(self.store) as writer:
            self.run = writer.begin_run(NewRun(target_pid=4321, **row))
        self.server = Server.open(self.store, self.run, self.answer)
        self.socket = self.store.parent / "control" / f"{self.run}.sock"
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def serving(self) -> Recorder:
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        while not self._is_over.is_set():
            select.select([self.server.handle], [], [], 0.05)
            self.server.serve()

    def close(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self.server.close()


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    found = Recorder(tmp_path)
    yield found
    found.close()
