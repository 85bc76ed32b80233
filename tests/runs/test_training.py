"""What a recording knows of the training, from what was kept of its processes."""

from __future__ import annotations

from typing import Any

import pytest

from whyidle.agents import wire
from whyidle.monitor.render import jsonl
from whyidle.monitor.runs.training import NO_STEPS, NOT_COUNTED, NOT_SAID, Counted, Trained, trained

NET = {"torch": {"version": "2.13.0", "backend": "cpu", "model": "Net", "parameters": 5}}
S = 1e9


def counted(steps: int | None, p50: int | None = None, **totals: float) -> Counted:
    spans = {name: (grown, 10.0) for name, grown in totals.items()}
    return Counted(steps, "optimizer" if steps else None, p50, 2 * p50 if p50 else None, spans)


def test_the_slowest_process_and_the_worst_waits_stand_for_the_job() -> None:
    quick = counted(100, 10, loader_batches=5, loader_wait_ns=2 * S, samples=50, compile_ns=S)
    slow = counted(99, 20, loader_batches=5, loader_wait_ns=5 * S, samples=70, compiles=4)
    found = trained([(NET, quick), ({}, slow), ({}, None)])
    assert (found.framework, found.version, found.model) == ("PyTorch", "2.13.0", "Net")
    assert (found.backend, found.parameters, found.batch_size) == ("cpu", 5, None)
    assert (found.steps, found.steps_source) == (99, "optimizer")
    assert (found.step_p50_s, found.step_p95_s) == (20e-9, 40e-9)
    assert found.samples_per_s == pytest.approx(12)
    assert found.loader_wait == pytest.approx(0.5)
    assert found.compile == pytest.approx(0.1)
    assert found.compiles == 4
    assert found.sync_wait is None


def test_what_loops_beside_the_training_makes_no_step() -> None:
    plays = Counted(900, "loop", 500, 500)
    found = trained([(NET, plays), ({}, counted(100, 10))])
    assert (found.steps, found.steps_source, found.step_p50_s) == (100, "optimizer", 10e-9)
    assert trained([(NET, plays)]).steps == 900


def test_a_loader_that_gave_no_batch_was_not_waited_for() -> None:
    found = trained([({}, counted(5, 10, loader_batches=0, loader_wait_ns=0))])
    assert found.loader_wait is None


def test_samples_of_some_ranks_are_not_the_samples_of_all() -> None:
    found = trained([({}, counted(5, 10, samples=50)), ({}, counted(5, 10))])
    assert found.samples_per_s is None


def test_a_share_is_never_more_than_all() -> None:
    assert counted(None, compile_ns=500 * S).share(wire.COMPILE_NS) == 1.0
    assert Counted(totals={wire.SYNC_NS: (5.0, 0.0)}).share(wire.SYNC_NS) is None


@pytest.mark.parametrize(
    "facts", [{"version": 5, "model": ["Net"], "parameters": True, "batch_size": "32"}, {"a": 1}]
)
def test_facts_of_another_kind_say_nothing(facts: dict[str, Any]) -> None:
    assert trained([({"jax": facts}, None)]) == Trained(framework="JAX")


def test_what_is_not_known_is_null_with_its_reason() -> None:
    answer = jsonl._trained(trained([]), Trained().why_not)
    assert answer["steps"] is None
    assert answer["unknown"]["steps"] == answer["unknown"]["step_p95_s"] == NO_STEPS
    assert answer["unknown"]["loader_wait"] == NOT_COUNTED
    assert answer["unknown"]["model"] == NOT_SAID
    assert set(answer["unknown"]) == set(answer) - {"unknown"}
