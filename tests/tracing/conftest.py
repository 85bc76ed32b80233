"""An agent that takes traces as a test tells it to, in this process."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.commands.tracefiles import kineto
from tests.link.conftest import FS, key_of
from tests.link.fake_agent import FakeAgent
from whyidle.agents import wire
from whyidle.monitor.link.link import Link
from whyidle.monitor.tracing.space import Space

T = TypeVar("T")


class Tracer(FakeAgent):
    """Promises each trace, and writes none by itself."""

    def __init__(self, parent: str) -> None:
        super().__init__(parent)
        self.refusal: str | None = None
        self.number = 0

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["do"] == "drop":
            self.file(message["id"]).unlink(missing_ok=True)
            return {"ok": True}
        if message["do"] != "trace":
            return super()._answer(message)
        if self.refusal is not None:
            return {"ok": False, "why": self.refusal}
        self.number += 1
        return {"ok": True, "id": self.number}

    def file(self, number: int = 1) -> Path:
        return self.folder / f"{os.getpid()}.trace-{number}"

    def says_done(self, number: int = 1, **facts: object) -> None:
        now = time.monotonic_ns()
        answer = {
            "framework": "torch",
            "file": self.file(number).name,
            "began_ns": now - 300_000_000,
            "ended_ns": now - 50_000_000,
            "realtime_ns": time.time_ns() - 300_000_000,
            "held_ns": 12_000_000,
            "events": 100,
        }
        self.write("trace", number, "done", {**answer, **facts})

    def takes(self, number: int = 1, text: str | None = None) -> None:
        """Write the file of a trace, and say so."""
        path = self.file(number)
        path.write_text(json.dumps(kineto()) if text is None else text)
        self.says_done(number, bytes=path.stat().st_size)

    def was_asked(self, do: str) -> list[dict[str, Any]]:
        return [message for message in self.asked if message["do"] == do]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    # Short, for the socket's name.
    with tempfile.TemporaryDirectory() as parent:
        monkeypatch.setattr(wire, "FOLDERS", ("/nowhere", parent))
        found = Tracer(parent)
        yield found
        found.close()


@pytest.fixture
def link(agent: Tracer) -> Iterator[Link]:
    found = Link.open(key_of(os.getpid()), FS)
    assert found is not None
    yield found
    found.close()


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    monkeypatch.setattr("whyidle.monitor.tracing.space.SPARE_BYTES", 0)
    return Space(tmp_path / "state" / "whyidle.db")


def until(attempt: Callable[[], T | None], seconds: float = 20.0) -> T:
    """Call this again and again until it returns something."""
    deadline = time.monotonic() + seconds
    while (found := attempt()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found
