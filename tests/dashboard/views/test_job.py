"""The share of compute: zero where that was measured, and unknown where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whyidle.dashboard.views.job import NOTHING, ONLY_A_TRACE, known_compute
from whyidle.monitor.core.slices import Slice


def budget(**ns: int) -> Mapping[str, Any]:
    return {"slices": {str(Slice(part)): value for part, value in ns.items()}}


def test_an_estimate_without_counters_does_not_say_that_nothing_is_computed() -> None:
    account = budget(compute=0, idle_input=10, idle_unknown=90)
    assert known_compute(account, "estimate", counted=False) == (None, ONLY_A_TRACE)


def test_a_counter_that_stands_at_zero_says_so() -> None:
    account = budget(compute=0, idle_unknown=100)
    assert known_compute(account, "estimate", counted=True) == (0.0, "by estimate")


def test_a_trace_that_has_no_compute_in_its_steps_says_so() -> None:
    account = budget(compute=0, idle_input=100)
    assert known_compute(account, "trace 3", counted=False) == (0.0, "by trace 3")


def test_what_is_known_is_a_share_of_all_the_time() -> None:
    account = budget(compute=30, idle_input=70)
    assert known_compute(account, "trace 3", counted=False)[0] == 0.3


def test_without_an_account_nothing_is_said() -> None:
    assert known_compute(None, None, counted=True) == (None, NOTHING)
    assert known_compute(budget(compute=0), "estimate", counted=True) == (None, NOTHING)
