"""An agent that is a puppet, and looks from outside that only seem so."""

from __future__ import annotations

import pytest

from tests.link.conftest import puppet
from tests.recording.seated import Looks
from whyidle.monitor.recording import onlooker

__all__ = ["puppet"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> type[Looks]:
    """Nobody looks from outside: py-spy would see what ``Looks`` says."""
    monkeypatch.setattr(onlooker, "Outside", Looks)
    monkeypatch.setattr(Looks, "open", 0)
    return Looks
