"""The rule cpu_fallback."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, judge, traced, window
from whyidle.monitor.core.finding import Confidence, Severity, SourceLine
from whyidle.monitor.signals.recorded import SeenGpu

NAME = "cpu_fallback"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "tensorflow": (
        """
import tensorflow as tf
known = tf.config.list_physical_devices
tf.config.list_physical_devices = lambda kind: [kind]
""",
        "tf.config.list_physical_devices = known",
    ),
    "pytorch": (
        """
import torch
model = torch.nn.Linear(4, 2)
loss_of = torch.nn.functional.mse_loss
batches = [(torch.ones(8, 4), torch.zeros(8, 2))]
""",
        "assert next(model.parameters()).device.type == device and loss > 0",
    ),
    "jax": ("import jax", "assert backend == jax.devices()[0].platform"),
}
GPU = SeenGpu("0", "NVIDIA H200", owned=True, means={})
CPU_ONLY = {"backend": "cpu", "gpus_present": 0}


def _jax(**facts: Any) -> dict[str, dict[str, Any]]:
    return {"jax": {"backend": "cpu", "gpus_present": 1, **facts}}


@pytest.mark.parametrize(
    ("facts", "framework"),
    [
        (_jax(platforms_asked=None, gpus_visible=None), "jax"),
        (_jax(platforms_asked="cuda,cpu", gpus_visible="0"), "jax"),
        ({"torch": {"backend": "cpu", "gpus_present": 2}}, "pytorch"),
        ({"torch": {"backend": "cpu", "gpus_present": None}}, "pytorch"),
    ],
)
def test_a_job_on_the_cpu_beside_a_gpu(facts: dict[str, Any], framework: str) -> None:
    finding = found(NAME, window(facts=facts, gpus=(GPU,), inside=True))
    assert finding.severity is Severity.HIGH
    assert finding.gain is None
    assert finding.frameworks == (framework,)
    assert finding.evidence[0].value >= 1


def test_julia_on_the_cpu_is_a_hint_and_no_error() -> None:
    # Its driver may only be loaded later, and most of its programs want none.
    facts = {"julia": {"backend": "cpu", "version": "1.10.4", "gpus_visible": None}}
    finding = found(NAME, window(facts=facts, gpus=(GPU,)))
    assert finding.severity is Severity.LOW
    assert finding.confidence is Confidence.HINTED
    facts["julia"]["gpus_visible"] = ""
    assert found(NAME, window(facts=facts, gpus=(GPU,))).severity is Severity.INFO


def test_no_line_is_blamed() -> None:
    lines = (SourceLine("/job/train.py", 12, "step", 0.9),)
    finding = found(NAME, window(facts=_jax(), gpus=(GPU,), lines=lines))
    assert finding.where == ()


def test_a_container_that_the_gpu_was_not_let_into() -> None:
    finding = found(NAME, window(facts={"jax": CPU_ONLY}, gpus=(GPU,)))
    assert finding.title is not None
    assert "cannot open" in finding.title


@pytest.mark.parametrize(
    ("chosen", "word"),
    [
        ({"platforms_asked": "cpu"}, "JAX_PLATFORMS"),
        ({"gpus_visible": ""}, "CUDA_VISIBLE_DEVICES"),
        ({"gpus_visible": "-1"}, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_person_who_chose_the_cpu_is_only_informed(chosen: dict[str, str], word: str) -> None:
    finding = found(NAME, window(facts=_jax(**chosen), gpus=(GPU,)))
    assert finding.severity is Severity.INFO
    assert finding.title is not None
    assert word in finding.title


@pytest.mark.parametrize(
    "facts",
    [
        {"jax": {"backend": "gpu", "gpus_present": 1}},
        {"torch": {"backend": "cuda", "gpus_present": 1}},
        # JAX prepares the data, PyTorch trains.
        {"jax": {"backend": "cpu", "gpus_present": 1}, "torch": {"backend": "cuda"}},
    ],
)
def test_a_job_that_uses_the_gpu(facts: dict[str, Any]) -> None:
    assert judge(NAME, window(facts=facts, gpus=(GPU,))) is None


def test_a_machine_without_a_gpu() -> None:
    assert judge(NAME, window(facts={"jax": CPU_ONLY})) is None


def test_nobody_says_what_it_computes_with_or_what_there_is() -> None:
    assert cannot_judge(NAME, window(gpus=(GPU,)))
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cpu", "gpus_present": None}}))


def test_a_trace_of_a_gpu() -> None:
    assert judge(NAME, traced("h100_qwen05b")) is None
