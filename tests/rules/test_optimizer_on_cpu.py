"""The rule optimizer_on_cpu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.rules.optimizer_on_cpu import BACK
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "optimizer_on_cpu"
FIXES = {
    "pytorch": (
        """
import torch
your_optimizer, as_before = torch.optim.SGD, {"lr": 0.1}
model, device = torch.nn.Linear(3, 3), "cpu"
""",
        "assert len(optimizer.param_groups[0]['params']) == 2",
    ),
}
DEEPSPEEDS: dict[str, Any] = {
    "kind": "DeepSpeedCPUAdam", "of_torch": False, "tensors": 3, "device": "cpu",
    "state_device": "cpu", "foreach": "absent", "fused": "absent",
}  # fmt: skip
TORCHS = DEEPSPEEDS | {"kind": "AdamW", "of_torch": True, "foreach": None, "fused": None}


def of(
    *optimizers: dict[str, Any], share: float = 0.8, used: int = 1, busy: float = 0.1, **more: Any
) -> Window:
    """Return a job that has a GPU in use."""
    facts = {"torch": {"devices_used": used, "optimizers": list(optimizers)}}
    gpu = SeenGpu("0", "NVIDIA H100", owned=True, means={m.GPU_UTILISATION: busy})
    return window(facts=facts, means={m.PROCESS_OPTIMIZER_TIME: share}, gpus=(gpu,), **more)


@pytest.mark.parametrize(
    "optimizer",
    [
        # DeepSpeed's own; torch's beside FSDP that offloads; only its state stayed there.
        DEEPSPEEDS,
        TORCHS,
        TORCHS | {"device": "cuda", "state_device": "cpu"},
    ],
)
def test_its_time_is_lost_while_the_gpu_is_idle(optimizer: dict[str, Any]) -> None:
    finding = found(NAME, of(optimizer))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.7 * BACK[0])
    assert finding.gain.high == pytest.approx(0.8 * BACK[1])


def test_a_gpu_that_works_meanwhile_loses_nothing_for_sure() -> None:
    finding = found(NAME, of(DEEPSPEEDS, share=0.3, busy=1.0))
    assert finding.gain is not None
    assert finding.gain.low == 0.0


@pytest.mark.parametrize(
    "job",
    [
        # On a CPU altogether: nothing waits for it.
        of(TORCHS, used=0),
        of(TORCHS | {"device": "cuda", "state_device": "cuda"}),
        # SGD has no state.
        of(TORCHS | {"device": "cuda", "state_device": None}),
        # A temperature, beside the model's own.
        of(TORCHS | {"device": "cuda", "state_device": "cuda"}, TORCHS, share=0.02),
    ],
)
def test_jobs_without_the_fault(job: Window) -> None:
    assert judge(NAME, job) is None


def test_nobody_is_inside() -> None:
    assert cannot_judge(NAME, window())
    assert judge(NAME, window(facts={"jax": {"version": "0.10"}})) is None


def test_the_line_that_offloads(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("config = {\n    'offload_optimizer': {'device': 'cpu'},\n}\nrun()\n")
    lines = (SourceLine(str(file), 4, "<module>", 0.9),)
    assert [each.line for each in found(NAME, of(DEEPSPEEDS, lines=lines)).where] == [2]
