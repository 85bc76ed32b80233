"""What a change of a program gives: the program and its changes take turns on the same machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faultbench.jobs import Runs
from benchmarks.faultbench.truth import in_turns
from benchmarks.strangers.cases import Case, Change
from benchmarks.strangers.jobs import Job


def measured(
    case: Case, changes: Sequence[Change], mirrors: Path | None
) -> dict[str, dict[str, Any]]:
    """Return how many times faster each change makes the program: lowest, middle, highest."""
    starts: dict[str, Callable[[], Runs]] = {case.name: partial(Job, case, mirrors, paused=True)}
    for change in changes:
        starts[change.name] = partial(Job, case, mirrors, change, paused=True)
    found = in_turns(starts, case.turn_s)
    return {name: _inverted(each) for name, each in found.items()}


def _inverted(found: dict[str, Any]) -> dict[str, Any]:
    """Turn around how much faster the program is than its change."""
    gain = found.get("gain")
    return found if gain is None else found | {"gain": [round(1 / x, 4) for x in reversed(gain)]}
