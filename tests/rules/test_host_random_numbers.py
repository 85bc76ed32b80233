"""The rule host_random_numbers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    traced,
    window,
)
from whyidle.monitor.core.finding import Found, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules.host_random_numbers import DEQUE
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples

NAME = "host_random_numbers"
FIXES = {
    "pytorch": (
        "import torch\nx = torch.zeros(2, 3)",
        "assert noise.shape == x.shape and noise.dtype == x.dtype and noise.abs().sum() > 0",
    ),
    "jax": (
        """
import jax, jax.numpy as jnp
params, x, key, steps = jnp.ones(3), jnp.ones((4, 3)), jax.random.key(0), 3
def loss(params, x):
    return jnp.mean(jnp.square(x @ params))
""",
        "assert params.shape == (3,) and jnp.all(params < 1)",
    ),
}
CPU = {"torch": {"backend": "cpu"}}
CUDA = {"torch": {"backend": "cuda"}}


def on_line(folder: Path, text: str, facts: dict[str, object], before: str = "") -> object:
    """Judge a job whose main thread spends half of its time on such a line."""
    # What was read of a file is kept.
    file = folder / f"train{len(text)}.py"
    file.write_text(f"{before}\n{text}\n")
    lines = (SourceLine(str(file), 2, "train", 0.5), SourceLine(str(file), 1, "train", 0.5))
    taken = answer({Slice.COMPUTE: 0.4, Slice.IDLE_DISPATCH: 0.6})
    return judge(NAME, window(taken, lines=lines, facts=facts))


@pytest.mark.parametrize(
    "text",
    [
        "x = np.random.normal(size=9)",
        "x = torch.from_numpy(numpy.random.rand(9)).to(device)",
        "x = [random.gauss(0, 1) for _ in range(9)]",
        "x = self.rng.standard_normal(9)",
    ],
)
def test_lines_that_draw_on_the_host(tmp_path: Path, text: str) -> None:
    assert on_line(tmp_path, text, CPU) is not None


@pytest.mark.parametrize(
    "text",
    [
        "x = jax.random.normal(key, (9,))",
        "x = np.random.default_rng(1)",
        "x = torch.randn(9)",
        "x = step(params, batch)",
    ],
)
def test_lines_that_draw_elsewhere_or_nothing(tmp_path: Path, text: str) -> None:
    assert on_line(tmp_path, text, CPU) is None


@pytest.mark.parametrize(
    ("made", "text", "is_deque"),
    [
        ("self.store = deque(maxlen=size)", "rows = zip(*random.sample(self.store, 64))", True),
        ("memory = collections.deque((), 50_000)", "rows = random.choices(memory, k=9)", True),
        (
            "kept: deque[Row] = field(default_factory=deque)",
            "x = random.choices(self.kept, k=64)",
            True,
        ),
        ("self.store = []", "rows = zip(*random.sample(self.store, 64))", False),
        ("self.store = list(deque(x))", "rows = zip(*random.sample(self.store, 9))", False),
        ("if self.store == deque(): pass", "rows = random.sample(self.store, 128)", False),
        ("self.store = []  # = no deque", "rows = zip(*random.sample(self.store, 65))", False),
        ("memory = collections.deque()", "rows = np.random.choice(memory, 64)", False),
        ("self.store = deque(maxlen=500)", "rows = random.sample(self.store, 66)", False),
        ("recent = deque(maxlen=100)", "rows = random.sample(self.store, 64)", False),
        ("self.store = deque()", "x = self.rng.normal(size=len(self.store))", False),
    ],
)
def test_samples_of_a_deque(tmp_path: Path, made: str, text: str, *, is_deque: bool) -> None:
    finding = on_line(tmp_path, text, CPU, made)
    assert isinstance(finding, Found)
    assert (finding.title == DEQUE) is is_deque
    assert finding.gain is not None
    if is_deque:
        assert finding.fixes is not None
        names: dict[str, Any] = {"random": random}
        exec(finding.fixes["pytorch"].code, names)
        memory = names["Memory"](3)
        for item in range(5):
            memory.append(item)
        assert len(memory) == 3
        assert sorted(memory.sample(3)) == [2, 3, 4]


def test_what_comes_back_depends_on_who_draws(tmp_path: Path) -> None:
    jax = {"jax": {"backend": "cpu"}}
    by_python = on_line(tmp_path, "x = [random.gauss(0, 1) for _ in range(9)]", CPU)
    by_numpy = on_line(tmp_path, "x = np.random.normal(size=(9, 9))", CPU)
    for_jax = on_line(tmp_path, "x = np.random.normal(size=(9, 9, 9))", jax)
    gains = [each.gain.expected for each in (by_python, by_numpy, for_jax)]  # type: ignore[attr-defined]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 0.25


def test_no_more_comes_back_than_nothing_was_computed_in(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = [random.gauss(0, 1) for _ in range(9)]\n")
    lines = (SourceLine(str(file), 1, "train", 0.9),)
    taken = answer({Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5})
    finding = found(NAME, window(taken, lines=lines, facts=CPU))
    assert finding.gain is not None
    assert finding.gain.low <= 0.5


def test_a_module_of_jax_by_the_name_of_pythons(tmp_path: Path) -> None:
    assert on_line(tmp_path, "x = random.uniform(key)", CPU, "from jax import random") is None


def test_numbers_of_pytorch_for_a_gpu(tmp_path: Path) -> None:
    assert on_line(tmp_path, "x = torch.randn(9).cuda()", CUDA) is not None
    assert on_line(tmp_path, "x = torch.randn(9, device=device)", CUDA) is None


def test_a_gpu_that_is_busy_all_the_time(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = np.random.normal(size=9)\n")
    full = answer({Slice.COMPUTE: 0.99, Slice.IDLE_DISPATCH: 0.01}, kind="gpu")
    lines = (SourceLine(str(file), 1, "train", 0.5),)
    assert is_silent(NAME, window(full, lines=lines, facts=CUDA))


def test_nobody_sampled_the_main_thread() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, traced("h100_qwen05b"))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.expected >= 0.2
    assert finding.where[0].file.endswith(f"before_{framework}.py")
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


def test_a_single_sample_of_what_is_drawn_once_is_no_fault() -> None:
    assert judge(NAME, recorded("too_little_after_warmup/before_jax")) is None


def test_what_a_line_does_with_the_numbers_is_no_drawing(tmp_path: Path) -> None:
    file = tmp_path / "train_and_more.py"
    file.write_text("\ntext = np.array2string(np.random.standard_normal(3_000))\n")
    line = SourceLine(str(file), 2, "train", 0.9)
    drawn = SourceLine(str(file), 2, "train", 0.2)
    written = SourceLine("/v/site-packages/numpy/_core/arrayprint.py", 3, "array2string", 0.7)
    taken = answer({Slice.COMPUTE: 0.1, Slice.IDLE_DISPATCH: 0.9})
    job = window(taken, lines=(line,), leaves=(drawn, written), facts=CPU, looks=1000)
    gain = found(NAME, job).gain
    assert gain is not None
    assert gain.high < 0.25


@pytest.mark.parametrize(("asleep", "is_found"), [(0, True), (480, False)])
def test_who_sleeps_at_a_line_draws_nothing_meanwhile(
    asleep: int, *, is_found: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text("time.sleep(0.05); x = [random.random() for _ in range(9)]\nstep(x)\n")
    samples = StackSamples()
    samples.samples = 1000
    for number, count, waited in ((1, 500, asleep), (2, 500, 0)):
        line = CodeLine(str(file), number, "<module>")
        samples.count(Chain((line,), line), count, count, waited)
    job = window(stacks=samples, lines=samples.lines(), facts=CPU, inside=True)
    assert (judge(NAME, job) is not None) == is_found
