"""Whether debugging modes are on, as the agent reports it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.agents.torch.inside import probe
from whyidle.agents import wire
from whyidle.agents.framework import FIRST_SECONDS, STATE_SECONDS
from whyidle.agents.torch import probe as torch_probe

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    torch.autograd.set_detect_anomaly(False)


def test_anomaly_detection_is_seen_while_it_is_on() -> None:
    with probe() as observed:
        assert observed.second()[wire.DEBUG_MODES] == 0
        assert observed.state()["anomaly_detection"] is False
        torch.autograd.set_detect_anomaly(True)
        assert observed.second()[wire.DEBUG_MODES] == 1
        assert observed.state()["anomaly_detection"] is True
        torch.autograd.set_detect_anomaly(False)
        assert observed.second()[wire.DEBUG_MODES] == 0
        assert observed.state()["anomaly_detection"] is False


def test_what_is_on_in_some_seconds_is_a_fact_of_all_since_the_last_state() -> None:
    with probe() as observed:
        for _ in range(FIRST_SECONDS + 1):
            observed.second()
        torch.autograd.set_detect_anomaly(True)
        observed.second()
        torch.autograd.set_detect_anomaly(False)
        for _ in range(STATE_SECONDS - 1):
            observed.second()
        assert observed.state()["anomaly_detection"] is True
        for _ in range(STATE_SECONDS):
            observed.second()
        assert observed.state()["anomaly_detection"] is False


def test_every_fact_is_described_at_the_head_of_the_probe() -> None:
    with probe() as observed:
        observed.second()
        missing = set(observed.state()) - set(re.findall(r"\w+", torch_probe.__doc__ or ""))
    assert not missing, f"no line in {torch_probe.__file__} for {missing}"


def test_a_profiler_of_the_jobs_own_is_seen_while_it_runs() -> None:
    with probe() as observed:
        observed.second()
        assert observed.state()["own_profiler"] is False
        with torch.profiler.profile():
            assert observed.second()[wire.DEBUG_MODES] == 1
            assert observed.state()["own_profiler"] is True
        assert observed.second()[wire.DEBUG_MODES] == 0
        assert observed.state()["own_profiler"] is False


def test_a_version_that_does_not_say_whether_it_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch.autograd.profiler._is_profiler_enabled")
    with probe() as observed:
        assert observed.second()[wire.DEBUG_MODES] == 0
        assert observed.state()["anomaly_detection"] is False
        assert "own_profiler" not in observed.state()
        assert observed.said == []
