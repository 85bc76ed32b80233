"""The rule double_precision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, stacks, window
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "double_precision"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import numpy as np, torch
model, array = torch.nn.Linear(4, 2).double(), np.ones((3, 4))
""",
        "assert model(data).dtype == torch.float32",
    ),
    "jax": (
        """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
array = np.ones((3, 4))
""",
        "assert (data @ data.T).dtype == np.float32",
    ),
}


def of(framework: str, kinds: Mapping[str, int], backend: str = "cpu", **more: object) -> Window:
    facts = {framework: {"dtypes": kinds, "backend": backend}}
    return window(facts=facts, inside=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("framework", "kinds"),
    [
        # model.double(); torch.set_default_dtype; jax_enable_x64 beside integers; a Fourier model
        ("torch", {"float64": 1_000_000}),
        ("torch", {"float64": 900_000, "float32": 100_000, "int64": 5_000_000}),
        ("jax", {"float64": 80_000_000, "int64": 800_000_000, "uint32": 16}),
        ("jax", {"complex128": 64_000_000, "float64": 1_000_000, "float32": 2_000_000}),
    ],
)
def test_most_of_it_is_double(framework: str, kinds: Mapping[str, int]) -> None:
    finding = found(NAME, of(framework, kinds))
    assert finding.gain is not None
    # Nobody knows how much of the time is work.
    assert finding.gain.low == 0.0
    assert finding.gain.high >= 0.5


@pytest.mark.parametrize(
    ("framework", "kinds"),
    [
        ("torch", {"float32": 1_000_000, "float64": 2_000}),
        ("torch", {"bfloat16": 1_000_000, "float32": 900_000}),
        ("jax", {"int64": 800_000_000, "float32": 8_000_000}),
        ("jax", {"uint8": 1_000_000}),
        ("torch", {"float8_e4m3fn": 1_000_000}),
    ],
)
def test_other_jobs(framework: str, kinds: Mapping[str, int]) -> None:
    assert is_silent(NAME, of(framework, kinds))


FLOAT32 = {"float32": 23_000_000, "float64": 8}


def compiled(*programs: tuple[int | None, Mapping[str, int]], **more: object) -> Window:
    """Return a job of JAX whose programs have these flops and products."""
    kinds = more.pop("kinds", FLOAT32)
    largest = [
        {"name": f"jit_{number}", "flops": flops, "products": products}
        for number, (flops, products) in enumerate(programs)
    ]
    facts = {"jax": {"dtypes": kinds, "backend": "cpu", "largest_executables": largest}}
    return window(facts=facts, inside=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("programs", "share"),
    [
        # a step and its evaluation in float64; a step beside small ones of float32
        ([(5_000, {"f64": 23}), (6_000, {"f64": 8}), (900, {})], 1.0),
        ([(5_000, {"f64": 20}), (10, {"f32": 8})], 0.998),
        # too large to ask for flops, beside a small one
        ([(None, {"f64": 23}), (10, {"f32": 2})], 0.92),
        ([(900, {"c128": 2, "s32": 40})], 1.0),
        ([(900, {"f64": 3, "bf16": 1})], 0.75),
    ],
)
def test_only_the_programs_compute_in_double(programs: list[object], share: float) -> None:
    finding = found(NAME, compiled(*programs))  # type: ignore[arg-type]
    assert finding.evidence[0].name == "products in compiled programs in float64"
    assert finding.evidence[0].value == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize(
    "programs",
    [
        # float32 throughout; one sum or rate in float64; integers; a small evaluation in float64
        [(5_000, {"f32": 23})],
        [(5_000, {"f32": 8, "f64": 1})],
        [(5_000, {"s8": 8})],
        [(5_000, {"bf16": 23}), (500, {"f64": 8})],
    ],
)
def test_programs_of_float32_under_64_bits(programs: list[object]) -> None:
    assert is_silent(NAME, compiled(*programs))  # type: ignore[arg-type]


def test_a_table_of_float64_that_programs_cast_first() -> None:
    assert is_silent(NAME, compiled((5_000, {"f32": 23}), kinds={"float64": 80_000_000}))


def test_the_range_follows_how_much_of_the_work_is_double() -> None:
    taken = answer({Slice.COMPUTE: 0.8, Slice.IDLE_DISPATCH: 0.2}, calls={"dot": 3.0})

    def gain(*programs: tuple[int | None, Mapping[str, int]]) -> tuple[float, float]:
        job = compiled(*programs).job
        range_ = found(NAME, Window("test", "run", window(taken).traces, job)).gain
        assert range_ is not None
        return range_.low, range_.high

    whole = gain((900, {"f64": 4}))
    assert gain((900, {"f64": 3, "f32": 1})) == pytest.approx([0.75 * each for each in whole])
    # Which of two programs runs most is not known.
    assert gain((900, {"f64": 4}), (500, {"f32": 4})) == pytest.approx((0.0, whole[1]))


@pytest.mark.parametrize(("call", "most"), [("aten::addmm", 0.57), ("aten::conv2d", 0.8)])
def test_a_trace_says_how_much_of_it_is_work(call: str, most: float) -> None:
    taken = answer({Slice.COMPUTE: 0.8, Slice.IDLE_DISPATCH: 0.2}, calls={call: 3.0})
    job = of("torch", {"float64": 1_000_000}).job
    gain = found(NAME, Window("test", "run", window(taken).traces, job)).gain
    assert gain is not None
    assert 0 < gain.low < gain.high == pytest.approx(0.8 * most)


def test_without_a_trace_the_samples_do() -> None:
    backward = SourceLine("/venv/lib/python3.11/site-packages/torch/_tensor.py", 5, "backward", 1)
    codec = SourceLine("/venv/lib/python3.11/site-packages/PIL/Image.py", 5, "save", 1)
    line = SourceLine("/job/train.py", 7, "fit", 1)
    seen = stacks((backward, (line,), 600), (codec, (line,), 400))
    gain = found(NAME, of("torch", {"float64": 9}, stacks=seen)).gain
    assert gain is not None
    # What it computes is not known: a convolution wins most.
    assert 0 < gain.low < gain.high < 0.65 * 0.8


def test_nobody_is_inside() -> None:
    assert cannot_judge(NAME, window())


def test_the_line_that_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n# float64 helps\nnet = build().double()\nfor x in data:\n  go(x)\n"
    )
    lines = (SourceLine(str(file), 5, "<module>", 0.9),)
    finding = found(NAME, of("torch", {"float64": 9}, lines=lines))
    assert [(place.file, place.line) for place in finding.where] == [(str(file), 3)]


FACTORED = {
    "PyTorch": "import torch\nmodel.double()\nlow = torch.linalg.cholesky(kernel(x))\n",
    "SciPy's in JAX": """\
from jax.scipy.linalg import cho_factor, cho_solve
jax.config.update("jax_enable_x64", True)
weights = cho_solve(cho_factor(gram), y)
""",
    "a library": 'import gpjax as gpx\nconfig.update("jax_enable_x64", True)\ngpx.fit(model)\n',
    "a part of a library": "from gpytorch.mlls import Exact\nmodel.double()\nExact(model)(x)\n",
}


@pytest.mark.parametrize("style", FACTORED)
def test_what_factors_matrices_is_told_quietly(style: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(FACTORED[style])
    lines = (SourceLine(str(file), 3, "<module>", 0.9),)
    finding = found(NAME, of("torch", {"float64": 9}, lines=lines))
    assert finding.severity is Severity.LOW
    assert finding.fixes is not None
    assert "compare the results" in finding.fixes["pytorch"].text
    # Its twin multiplies matrices, and keeps nothing of what the other imports.
    twin = tmp_path / "twin.py"
    twin.write_text("import torch\nmodel.double()\nlow = torch.matmul(kernel(x), x)\n")
    lines = (SourceLine(str(twin), 3, "<module>", 0.9),)
    assert found(NAME, of("torch", {"float64": 9}, lines=lines)).severity is None


def test_what_is_set_where_a_program_begins_is_named(tmp_path: Path) -> None:
    script, model = tmp_path / "train.py", tmp_path / "model.py"
    script.write_text("import torch, model\ntorch.set_default_dtype(torch.float64)\nmodel.fit()\n")
    model.write_text("def fit():\n    net(x)\n")
    inner, outer = CodeLine(str(model), 2, "fit"), CodeLine(str(script), 3, "<module>")
    samples = StackSamples()
    samples.samples = 100
    samples.count(Chain((inner, outer), inner), 100, 100, 0)
    watched = of("torch", {"float64": 9}, lines=samples.lines(), stacks=samples)
    assert [(p.file, p.line) for p in found(NAME, watched).where] == [(str(script), 2)]
