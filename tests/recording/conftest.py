"""An agent that is a puppet, looks from outside that only seem so, and a recorder at hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.link.conftest import puppet
from tests.recording.benches import Bench, Job
from tests.recording.seated import Looks
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording import external_sampler

__all__ = ["puppet"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> type[Looks]:
    """Nobody looks from outside: py-spy would see what ``Looks`` says."""
    monkeypatch.setattr(external_sampler, "PySpySampler", Looks)
    monkeypatch.setattr(Looks, "open", 0)
    return Looks


@pytest.fixture
def bench(job: Job, tmp_path: Path) -> Iterator[Bench]:
    found = Bench(job, tmp_path / DATABASE)
    yield found
    found.recorder.end("done")
    found.waker.close()
