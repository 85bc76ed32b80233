"""A puppet for an agent, made-up samples from outside, and a recorder ready to use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.link.conftest import puppet
from tests.recording.benches import Bench, Job
from tests.recording.seated import Samples
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording.stacks import external_sampler

__all__ = ["puppet"]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> type[Samples]:
    """Nothing samples from outside: ``Samples`` stands for the thread that does."""
    monkeypatch.setattr(external_sampler, "StackThread", Samples)
    monkeypatch.setattr(external_sampler, "TAKEN_SECONDS", 0.0)
    monkeypatch.setattr(Samples, "seen", {})
    monkeypatch.setattr(Samples, "refused", None)
    monkeypatch.setattr(Samples, "closed", False)
    return Samples


@pytest.fixture
def bench(job: Job, tmp_path: Path) -> Iterator[Bench]:
    found = Bench(job, tmp_path / DATABASE)
    yield found
    found.recorder.end("done")
    found.waker.close()
