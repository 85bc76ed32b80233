"""What several probes report together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from whyidle.agents.probes import Probes
from whyidle.agents.timers import Timers


def test_what_two_frameworks_count_is_added_up() -> None:
    probes = Probes(Timers(), lambda _: None, None)
    figures: list[dict[str, Any]] = [{"compiles": 3, "pool": None}, {"compiles": 4, "pool": 5}]
    for name, its in zip(("jax", "torch"), figures, strict=True):
        probe: Any = SimpleNamespace(gauges=lambda _now, its=its: its)
        probes._on[name] = (probe, SimpleNamespace())  # type: ignore[assignment]
    found = probes.gauges(0)
    assert (found["compiles"], found["pool"]) == (7, 5)
