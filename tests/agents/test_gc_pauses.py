"""Collections whose beginning or end was not seen."""

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
        # Later it counts as lost: somebody else removed one of our callbacks meanwhile.
        for tap in ours:
            tap("stop", INFO)
        assert pauses.take() == []
        assert pauses.lost == 1
    finally:
        gc.enable()
        hooks.undo()
    assert len(gc.callbacks) == before
