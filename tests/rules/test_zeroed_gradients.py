"""The rule zeroed_gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import cannot_judge, found, judge, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "zeroed_gradients"
FIXES = {
    "pytorch": (
        """
import torch
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
model(torch.ones(3)).sum().backward()
""",
        "assert model.weight.grad is None",
    ),
}
USER = CodeLine("/home/me/train.py", 31, "train")
REST = CodeLine("/home/me/train.py", 33, "train")


GPU = SeenGpu("0", "NVIDIA H100", owned=True, means={m.GPU_UTILISATION: 0.9})


SOURCES = Path(__file__).parents[1] / "data" / "sources"


def of(
    line: int = 16,
    samples: float = 8,
    *,
    where: str = "torch/optim/optimizer.py",
    framework: str = "torch",
    backend: str = "cuda",
) -> Window:
    """Return a job whose main thread was found at a line of such a file in some of 100 samples."""
    leaf = CodeLine(str(SOURCES / "site-packages" / where), line, "zero_grad")
    seen = stacks((leaf, (USER,), samples), (REST, (REST,), 100 - samples))
    gpus = (GPU,) if backend == "cuda" else ()
    facts = {framework: {"version": "2.13.0", "backend": backend}}
    return window(facts=facts, stacks=seen, gpus=gpus)


@pytest.mark.parametrize("line", [12, 14, 16])
@pytest.mark.parametrize("where", ["torch/optim/optimizer.py", "torch/nn/modules/module.py"])
def test_filling_is_found_at_the_users_line(line: int, where: str) -> None:
    finding = found(NAME, of(line, where=where))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.08))
    assert [(place.file, place.line) for place in finding.where] == [(USER.file, USER.line)]


def test_on_a_cpu_it_is_no_fault() -> None:
    assert judge(NAME, of(samples=40, backend="cpu")) is None


@pytest.mark.parametrize(
    ("line", "samples", "where"),
    [
        # It drops them, as it does by itself.
        (10, 20, "torch/optim/optimizer.py"),
        (8, 20, "torch/optim/optimizer.py"),
        # Hardly any time.
        (16, 0.9, "torch/optim/optimizer.py"),
        # A buffer of the user's own.
        (16, 20, "mine/optim/optimizer.py"),
    ],
)
def test_what_is_no_filling(line: int, samples: float, where: str) -> None:
    assert judge(NAME, of(line, samples, where=where)) is None


def test_jax_has_no_gradients_that_stay() -> None:
    assert judge(NAME, of(framework="jax")) is None


def test_without_samples_it_is_not_judged() -> None:
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cuda"}}, gpus=(GPU,)))
