"""The rule recomputed_activations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, recorded, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.runs.stacks import CodeLine, StackSamples
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "recomputed_activations"
FIXES = {
    "pytorch": (
        """
import torch
from torch.utils.checkpoint import checkpoint
layers, x = [torch.nn.Linear(3, 3) for _ in range(4)], torch.ones(2, 3)
""",
        "x.sum().backward()\nassert all(layer.weight.grad is not None for layer in layers)",
    ),
}
TORCH = "/env/lib/python3.11/site-packages/torch"
ENGINE = CodeLine(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")
CONV = CodeLine(f"{TORCH}/nn/modules/conv.py", 560, "_conv_forward")
GELU = CodeLine("/env/lib/python3.11/site-packages/transformers/activations.py", 9, "forward")
AGAIN = CodeLine(f"{TORCH}/utils/checkpoint.py", 1600, "unpack_hook")
TEXT = """\
def forward(self, x):
    h = self.first(x)
    return checkpoint(self.block, h, use_reentrant=False)
def block(self, x):
    return self.second(x)
def train():
    loss = model(x)
    {}
    optimizer.step()
"""
ROOMY = {m.JOB_RSS: 2e9, m.HOST_MEMORY_AVAILABLE: 9e9}


def job(folder: Path, back: str = "loss.backward()", *, leaf: CodeLine = CONV) -> Window:
    """Return a job in which a block takes 30 of 100 samples within the pass back, and 20 before."""
    file = folder / f"train_{abs(hash(back))}.py"
    file.write_text(TEXT.format(back))
    block, wrap = CodeLine(str(file), 5, "block"), CodeLine(str(file), 3, "forward")
    ahead, behind = CodeLine(str(file), 7, "train"), CodeLine(str(file), 8, "train")
    seen = stacks(
        (CONV, (block, wrap, ahead), 20), (leaf, (block, behind), 30), (ENGINE, (behind,), 50)
    )
    return window(facts={"torch": {"backend": "cpu"}}, stacks=seen, means=ROOMY, inside=True)


@pytest.mark.parametrize(
    "back",
    [
        "loss.backward()",
        "scaler.scale(loss).backward()",
        "accelerator.backward(loss / steps)",
        "grads = torch.autograd.grad(loss, parameters)",
    ],
)
def test_a_block_that_runs_again_within_the_pass_back(tmp_path: Path, back: str) -> None:
    finding = found(NAME, job(tmp_path, back))
    assert [place.line for place in finding.where] == [3]
    assert finding.gain is not None
    assert finding.gain.low < 0.6 * 0.3 < 1.5 * 0.3 < finding.gain.high


def test_layers_of_a_library(tmp_path: Path) -> None:
    file = tmp_path / "tune.py"
    file.write_text("model.gradient_checkpointing_enable()\nloss = model(x)\nloss.backward()\n")
    ahead, behind = (CodeLine(str(file), n, "<module>") for n in (2, 3))
    rows = (
        (CONV, (ahead,), 20),
        (CONV, (behind,), 10),
        (GELU, (behind,), 20),
        (ENGINE, (behind,), 50),
    )
    facts = {"torch": {"backend": "cpu"}}
    lines = (SourceLine(str(file), 3, "<module>", 0.8),)
    job = window(stacks=stacks(*rows), facts=facts, means=ROOMY, lines=lines, inside=True)
    finding = found(NAME, job)
    assert [place.line for place in finding.where] == [1]
    # What is no layer of torch's may be: it counts at most.
    assert finding.evidence[0].value == pytest.approx(0.1)
    assert finding.gain is not None
    assert finding.gain.high > 0.3 * 1.5


def test_layers_that_nobody_has_checkpointed(tmp_path: Path) -> None:
    file = tmp_path / "tune.py"
    file.write_text("model.train()\nloss = model(x)\nloss.backward()\n")
    ahead, behind = (CodeLine(str(file), n, "<module>") for n in (2, 3))
    rows = (CONV, (ahead,), 20), (CONV, (behind,), 30), (ENGINE, (behind,), 50)
    job = window(stacks=stacks(*rows), facts={"torch": {}}, means=ROOMY, inside=True)
    assert is_silent(NAME, job)


@pytest.mark.parametrize(
    ("back", "leaf"),
    [
        # The pass ahead is on the same line; the user's own method; no pass back at all.
        ("model(x).sum().backward()", CONV),
        ("self.block(x)", CONV),
        ("optimizer.step(closure)", CONV),
    ],
)
def test_layers_that_run_once(tmp_path: Path, back: str, leaf: CodeLine) -> None:
    assert is_silent(NAME, job(tmp_path, back, leaf=leaf))


def test_a_gradient_that_the_user_has_written(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def backward(ctx, g):\n    return g * rare(g)\nloss = f(x)\nloss.backward()\n")
    own, behind = CodeLine(str(file), 2, "backward"), CodeLine(str(file), 4, "<module>")
    # It may call layers, and the file checkpoint others.
    file.write_text(file.read_text() + "checkpoint(f, x)\n")
    seen = stacks((CONV, (own, behind), 40), (ENGINE, (behind,), 60))
    assert is_silent(NAME, window(facts={"torch": {}}, stacks=seen, means=ROOMY, inside=True))


def test_hooks_and_solvers_within_a_pass_back_are_no_checkpoints(tmp_path: Path) -> None:
    file = tmp_path / "deq.py"
    file.write_text("def solve(f):\n    return f(1)\nz = solve(f)\nz.backward()\n")
    inner, ahead, behind = (
        CodeLine(str(file), n, name) for n, name in ((2, "solve"), (3, "<module>"), (4, "<module>"))
    )
    rows = (CONV, (inner, ahead), 30), (CONV, (inner, behind), 40), (ENGINE, (behind,), 30)
    assert is_silent(NAME, window(facts={"torch": {}}, stacks=stacks(*rows), means=ROOMY))


def test_one_layer_within_does_not_make_a_hook_a_layer(tmp_path: Path) -> None:
    here = job(tmp_path)
    file = next(tmp_path.iterdir())
    block, wrap = CodeLine(str(file), 5, "block"), CodeLine(str(file), 3, "forward")
    behind, hook = CodeLine(str(file), 8, "train"), CodeLine(str(file), 99, "hook")
    rows = (
        (CONV, (block, wrap, CodeLine(str(file), 7, "train")), 100),
        (CONV, (block, behind), 100),
        (hook, (hook, behind), 500),
        (ENGINE, (behind,), 300),
    )
    finding = found(NAME, replace(here, job=replace(here.job, stacks=stacks(*rows))))
    assert finding.gain is not None
    assert finding.gain.low < 0.06


def test_a_job_that_needs_the_memory(tmp_path: Path) -> None:
    here = job(tmp_path)
    limited = ROOMY | {m.JOB_MEMORY_LIMIT: 3e9}
    assert is_silent(NAME, replace(here, job=replace(here.job, means=limited)))
    full = {m.JOB_RSS: 9e9, m.HOST_MEMORY_AVAILABLE: 2e9}
    assert is_silent(NAME, replace(here, job=replace(here.job, means=full)))
    assert cannot_judge(NAME, replace(here, job=replace(here.job, means={})))


def test_on_a_gpu_the_pass_back_has_a_thread_of_its_own(tmp_path: Path) -> None:
    here = job(tmp_path, leaf=ENGINE)
    threads = stacks((AGAIN, (), 30))
    gpu = SeenGpu("0", "NVIDIA H100", owned=True, means={m.GPU_UTILISATION: 0.9})
    known = {
        "facts": {"torch": {"backend": "cuda", "devices_used": 1}},
        "threads": threads,
        "gpus": (gpu,),
        "means": {m.PROCESS_POOL_PEAK: 8e9, m.PROCESS_POOL_LIMIT: 80e9},
    }
    finding = found(NAME, replace(here, job=replace(here.job, **known)))
    assert finding.severity is Severity.LOW
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.25))
    full = known | {"means": {m.PROCESS_POOL_PEAK: 50e9, m.PROCESS_POOL_LIMIT: 80e9}}
    assert is_silent(NAME, replace(here, job=replace(here.job, **full)))
    assert is_silent(
        NAME, replace(here, job=replace(here.job, **known | {"threads": StackSamples()}))
    )


def test_nobody_is_inside() -> None:
    assert cannot_judge(NAME, window(facts={"torch": {}}))
    assert is_silent(NAME, window(facts={"jax": {}}))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert [place.line for place in finding.where] == [42]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_another_fault() -> None:
    assert is_silent(NAME, recorded("unfused_optimizer/before_torch"))
