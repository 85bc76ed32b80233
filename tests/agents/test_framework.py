"""When the probe of a framework puts facts that seldom change."""

from __future__ import annotations

import sys
from _thread import get_ident
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whyidle.agents import framework
from whyidle.agents.context import ProbeContext
from whyidle.agents.framework import FrameworkProbe, Part
from whyidle.agents.timers import SECOND, Timers

NAME = "a_framework_of_this_test"


class Changing(Part):
    name = "changing"
    asked = 0

    def facts(self) -> dict[str, Any]:
        self.asked += 1
        # Nothing is known before the third second.
        return {"batch_size": self.asked} if self.asked > 2 else {}


class Probe(FrameworkProbe):
    name = "of this test"
    module = NAME
    parts = (Changing,)


def test_facts_are_put_at_once_at_first_and_seldom_later(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[list[Any]] = []
    probe = Probe(ProbeContext(Timers(), records.append, lambda _: None, get_ident()))
    probe.begin()
    # The job waits long before it imports the framework.
    for second in range(40):
        probe.gauges(second)
    assert records == []
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    for second in range(100, 130):
        probe.gauges(second)
    at = [record[1] - 100 for record in records]
    early = framework.FIRST_SECONDS
    assert at == [*range(2, early), *range(early, 30, framework.STATE_SECONDS)]


def clocked(timers: Timers, seconds: float, since: int = 0) -> list[int]:
    """Let time pass; returns when the thread was awake."""
    now, awake = since, []
    while now < since + seconds * SECOND:
        now += max(timers.wait_ns(now), 1)
        awake.append(now)
        timers.run(now)
    return awake


def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Probe, Timers]:
    """Return a probe that waits for its framework, on the test's own clock."""
    timers = Timers()
    monkeypatch.setattr("whyidle.agents.context.time.monotonic_ns", lambda: 0)
    probe = Probe(ProbeContext(timers, lambda _: None, lambda _: None, get_ident()))
    probe.begin()
    return probe, timers


def test_what_is_being_imported_is_met_as_soon_as_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe, timers = waiting(monkeypatch)
    assert len(clocked(timers, 1)) <= 6
    coming = ModuleType(NAME)
    coming.__spec__ = ModuleSpec(NAME, None)
    coming.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NAME, coming)
    clocked(timers, 1, SECOND)
    coming.__spec__._initializing = False  # type: ignore[attr-defined]
    assert not probe._begun
    clocked(timers, 2 * framework.COMING_NS / SECOND, 2 * SECOND)
    assert probe._begun
    assert not timers._timers


def test_nobody_is_woken_up_for_long_by_what_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe, timers = waiting(monkeypatch)
    clocked(timers, 61)
    assert not timers._timers
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    probe.gauges(62 * SECOND)
    assert probe._begun


class _Refusing:
    @property
    def _initializing(self) -> bool:
        raise RuntimeError


def _stub(spec: object) -> ModuleType:
    made = ModuleType(NAME)
    made.__spec__ = spec  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    "stands", [None, _stub(_Refusing()), _stub(SimpleNamespace(_initializing="yes"))]
)
def test_what_only_stands_for_a_framework_wakes_nobody_up_for_ever(
    monkeypatch: pytest.MonkeyPatch, stands: object
) -> None:
    probe, timers = waiting(monkeypatch)
    monkeypatch.setitem(sys.modules, NAME, stands)
    assert len(clocked(timers, 10)) <= 51
    clocked(timers, 60, 10 * SECOND)
    assert not timers._timers
    del probe


def test_an_import_that_never_ends_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, timers = waiting(monkeypatch)
    monkeypatch.setitem(sys.modules, NAME, _stub(SimpleNamespace(_initializing=True)))
    clocked(timers, (framework.WAITS_NS + framework.IMPORT_NS) / SECOND + 1)
    assert not timers._timers
