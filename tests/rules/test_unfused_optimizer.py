"""The rule unfused_optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, is_silent, judge, recorded, stacks, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Severity, SourceLine
from whyidle.monitor.rules.unfused_optimizer import FUSED, ON_GPU
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME = "unfused_optimizer"
FIXES = {
    "pytorch": (
        """
import torch
your_optimizer, as_before = torch.optim.SGD, {"lr": 0.1}
parameters = [*torch.nn.Linear(3, 3).parameters()]
""",
        "assert optimizer.param_groups[0]['fused']",
    ),
}
TORCHS: dict[str, Any] = {
    "kind": "AdamW", "of_torch": True, "tensors": 200, "device": "cpu", "state_device": "cpu",
    "foreach": False, "fused": None,
}  # fmt: skip


def of(
    *optimizers: dict[str, Any], share: float = 0.4, version: str = "2.13.0", **more: Any
) -> Window:
    """Return a job on a CPU with these optimizers, each a change of torch's AdamW."""
    said = [TORCHS | each for each in optimizers or ({},)]
    facts = {"torch": {"backend": "cpu", "version": version, "optimizers": said}}
    return window(facts=facts, means={m.PROCESS_OPTIMIZER_TIME: share}, **more)


def on_gpu(share: float, used: float | None, **change: Any) -> Window:
    means = {} if used is None else {m.GPU_UTILISATION: used}
    facts = {
        "torch": {
            "backend": "cuda",
            "version": "2.1.0",
            "optimizers": [TORCHS | {"device": "cuda", "state_device": "cuda"} | change],
        }
    }
    gpu = SeenGpu("0", "NVIDIA H100", owned=True, means=means)
    return window(facts=facts, means={m.PROCESS_OPTIMIZER_TIME: share}, gpus=(gpu,))


def test_what_the_loop_takes_comes_back_as_it_was_measured() -> None:
    finding = found(NAME, of())
    low, high = FUSED["AdamW"]
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.4 * low, 0.4 * high))
    assert finding.severity is None
    assert finding.confidence is Confidence.INFERRED
    assert [each.value for each in finding.evidence] == [0.4, 200]
    assert finding.fixes is not None
    assert "instead of foreach=False" in finding.fixes["pytorch"].text


def test_on_a_cpu_torch_takes_the_loop_by_itself_and_that_is_low_at_most() -> None:
    finding = found(NAME, of({"foreach": None}, share=0.6))
    assert finding.gain is not None
    assert finding.gain.low > 0.3
    assert finding.severity is Severity.LOW
    # Nothing is promised of plain SGD.
    assert found(NAME, of({"foreach": None, "kind": "SGD"})).severity is Severity.INFO


def test_of_two_the_one_that_loops_takes_a_part_at_least() -> None:
    finding = found(NAME, of({"tensors": 100}, {"tensors": 300, "fused": True}))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.1 * FUSED["AdamW"][0])
    assert finding.gain.high == pytest.approx(0.4 * FUSED["AdamW"][1])


@pytest.mark.parametrize(
    "change",
    [
        {"fused": True, "foreach": None},
        {"fused": None, "foreach": True},
        # Fused wins where both are said.
        {"fused": True, "foreach": False},
        # There is no faster way on a CPU.
        {"kind": "RMSprop", "fused": "absent"},
        {"kind": "LBFGS", "foreach": "absent", "fused": "absent"},
        # Not torch's: what its step does is not known.
        {"kind": "Adafactor", "of_torch": False, "foreach": "absent", "fused": "absent"},
        {"tensors": 4},
    ],
)
def test_optimizers_that_have_no_such_loop(change: dict[str, Any]) -> None:
    assert judge(NAME, of(change)) is None


def test_a_torch_that_could_not_fuse_on_a_cpu() -> None:
    assert judge(NAME, of(version="2.3.1")) is None
    assert judge(NAME, of(version="nightly")) is None


def test_an_optimizer_that_takes_no_time() -> None:
    assert judge(NAME, of(share=0.01)) is None


def test_on_a_gpu_only_what_was_asked_for_and_only_while_it_is_idle() -> None:
    finding = found(NAME, on_gpu(0.5, 0.2))
    assert finding.gain is not None
    # Of half of the time at least three tenths are idle, too.
    assert finding.gain.low == pytest.approx(0.3 * ON_GPU[0])
    assert finding.gain.high == pytest.approx(0.5 * ON_GPU[1])
    busy = found(NAME, on_gpu(0.5, 1.0)).gain
    unknown = found(NAME, on_gpu(0.5, None)).gain
    assert busy is not None
    assert unknown is not None
    assert (busy.low, unknown.low) == (0.0, 0.0)
    # There torch takes ``foreach`` by itself.
    assert judge(NAME, on_gpu(0.5, 0.2, foreach=None)) is None


def test_on_a_gpu_others_leave_foreach_out() -> None:
    finding = found(NAME, on_gpu(0.5, 0.2, kind="NAdam", fused="absent"))
    assert finding.fixes is not None
    assert finding.fixes["pytorch"].code == ""


def test_nobody_is_inside() -> None:
    assert cannot_judge(NAME, window())
    assert judge(NAME, window(facts={"jax": {"version": "0.10"}})) is None
    # An agent of before does not say.
    no_facts = window(facts={"torch": {}}, means={m.PROCESS_OPTIMIZER_TIME: 0.4})
    assert judge(NAME, no_facts) is None


def test_the_line_that_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def main():\n    opt = optim.AdamW(ps, foreach=False)  # AdamW(\n    run()\n")
    lines = (SourceLine(str(file), 3, "main", 0.9),)
    where = found(NAME, of(lines=lines)).where
    assert [(each.line, each.function) for each in where] == [(2, "main")]


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert finding.gain is not None
    assert [place.function for place in finding.where] == ["train"]
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


MAKES = """
def example():
    optimizer = torch.optim.AdamW(toy.parameters())
class Trainer:
    def __init__(self, model):
        self.optimizer = torch.optim.AdamW(model.parameters())
    def fit(self):
        self.optimizer.step()
def main():
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
"""


@pytest.mark.parametrize(
    ("optimizers", "within", "lines"),
    [
        # One that is in use, and made where the main thread still is.
        (1, "main", [10, 3, 6]),
        # It was made in a function that has ended.
        (1, "fit", [3, 6, 10]),
        # Of two in use one may have been made elsewhere: none is left out.
        (2, "main", [10, 3, 6]),
    ],
)
def test_of_many_that_make_one_those_in_use_come_first(
    optimizers: int, within: str, lines: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(MAKES)
    seen = stacks((CodeLine(str(file), 11 if within == "main" else 8, within), (), 100))
    where = found(NAME, of(*[{}] * optimizers, stacks=seen)).where
    assert [each.line for each in where] == lines
