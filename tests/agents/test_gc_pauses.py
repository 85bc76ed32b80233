"""Collections that were heard in part."""

from __future__ import annotations

import gc

from whyidle.agents.gc_pauses import GcPauses
from whyidle.agents.hooks import Hooks

INFO = {"generation": 0, "collected": 0, "uncollectable": 0}


def test_to_come_in_the_middle_of_a_collection_loses_nothing() -> None:
    pauses, hooks = GcPauses(), Hooks()
    before = len(gc.callbacks)
    pauses.install(hooks)
    ours = gc.callbacks[before:]
    try:
        gc.disable()
        for tap in ours:
            tap("stop", INFO)
        assert pauses.take() == []
        assert pauses.lost == 0
        # Later it is a loss: somebody else took one of ours out meanwhile.
        for tap in ours:
            tap("stop", INFO)
        assert pauses.take() == []
        assert pauses.lost == 1
    finally:
        gc.enable()
        hooks.undo()
    assert len(gc.callbacks) == before
