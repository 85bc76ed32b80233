"""The rule tensorflow_takes_all_memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules import test_memory_not_released as others
from tests.rules.windows import cannot_judge, found, is_silent, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "tensorflow_takes_all_memory"
FIXES = {
    "tensorflow": (
        "import tensorflow as tf",
        """
for gpu in tf.config.list_physical_devices("GPU"):
    assert tf.config.experimental.get_memory_growth(gpu)
""",
    ),
}
FACTS = {"backend": "gpu", "memory_growth": False, "memory_limited": False}


def job(held: float = 75.0 * others.GB, peak: float = 6.0 * others.GB, **facts: Any) -> Window:
    """Return a window over a job that holds and uses so much of its GPU of 80 GB."""
    mine = others.GpuUser(7, "train.py", is_ours=True, memory=held)
    neighbour = others.GpuUser(99, "eval.py", is_ours=False, memory=2.0 * others.GB)
    users = (mine, neighbour) if facts.pop("shared", False) else (mine,)
    seen = SeenGpu("0", "H100", True, {m.GPU_MEMORY_TOTAL: 80.0 * others.GB}, users=users)
    return window(
        means={m.PROCESS_POOL_PEAK: peak},
        gpus=(seen,),
        inside=True,
        facts={"tensorflow": {**FACTS, **facts}},
    )


def test_what_is_held_and_hardly_used() -> None:
    finding = found(NAME, job())
    assert finding.gain is None
    assert finding.severity is Severity.INFO
    assert [each.name for each in finding.evidence][:2] == ["memory held", "most memory in use"]


def test_where_somebody_else_needs_room_it_is_more_than_a_remark() -> None:
    assert found(NAME, job(shared=True)).severity is Severity.MEDIUM


@pytest.mark.parametrize(
    "healthy",
    [
        job(memory_growth=True),
        job(memory_limited=True),
        job(peak=60.0 * others.GB),
        job(held=10.0 * others.GB),
    ],
)
def test_memory_that_grows_or_is_used(healthy: Window) -> None:
    assert is_silent(NAME, healthy)


def test_not_judged() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(inside=True, facts={"tensorflow": FACTS}))
    assert is_silent(NAME, window(inside=True, facts={"torch": {}}))
