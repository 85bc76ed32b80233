"""When the probe of a framework tells what seldom changes."""

from __future__ import annotations

import sys
from _thread import get_ident
from types import ModuleType
from typing import Any

import pytest

from whyidle.agents import framework
from whyidle.agents.duties import Duties
from whyidle.agents.framework import FrameworkProbe, Part
from whyidle.agents.room import Room

NAME = "a_framework_of_this_test"


class Changing(Part):
    name = "changing"
    asked = 0

    def facts(self) -> dict[str, Any]:
        self.asked += 1
        # Nothing is known before the third look.
        return {"batch_size": self.asked} if self.asked > 2 else {}


class Probe(FrameworkProbe):
    name = "of this test"
    module = NAME
    parts = (Changing,)


def test_facts_are_told_at_once_at_first_and_seldom_later(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[Any]] = []
    probe = Probe(Room(Duties(), told.append, lambda _: None, get_ident()))
    probe.begin()
    # The job waits long before it imports the framework.
    for second in range(40):
        probe.gauges(second)
    assert told == []
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    for second in range(100, 130):
        probe.gauges(second)
    at = [record[1] - 100 for record in told]
    early = framework.FIRST_SECONDS
    assert at == [*range(2, early), *range(early, 30, framework.STATE_SECONDS)]
