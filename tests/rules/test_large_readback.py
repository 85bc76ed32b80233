"""The rule large_readback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    stacks,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "large_readback"
FIXES = {
    "jax": (
        """
import jax, jax.numpy as jnp
def loss_of(params, x, y):
    logits = x @ params
    return jnp.mean(logits**2), logits
def update(params, slope):
    return params - slope
""",
        """
params, loss, hits = step(jnp.eye(3), jnp.eye(3), jnp.arange(3))
assert loss.shape == hits.shape == () and float(hits) == 1
""",
    ),
    "pytorch": (
        """
import torch
logits, y, number, hits = torch.eye(3), torch.arange(3), 100, torch.zeros((), dtype=torch.long)
""",
        "assert hits.item() == 0",
    ),
}
FILE = "/job/train.py"
LINE = SourceLine(FILE, 30, "train", 0.6)
STEP = SourceLine(FILE, 29, "train", 0.4)
JAX = {"jax": {"backend": "cpu"}}
TORCH = {"torch": {"backend": "cpu"}}
TAKEN = answer({Slice.COMPUTE: 0.3, Slice.IDLE_DISPATCH: 0.7}, fmt="xplane")


# So many samples that chance plays no part.
MANY = 10**9


def read(kind: str, ns: int = 10**6) -> tuple[ReadBack, ...]:
    """Return the reads of one line, and how long each takes."""
    return (ReadBack(kind, FILE, 30, "train", 500, 500 * ns),)


def test_a_jax_job_that_takes_arrays_back() -> None:
    means = {m.PROCESS_READBACK: 400.0 * (1 << 20)}
    finding = found(
        NAME,
        window(TAKEN, means=means, facts=JAX, reads=read("array"), lines=(LINE, STEP), looks=MANY),
    )
    assert finding.gain is not None
    # The step of 10 ms brings 4 MB; at best only the other lines are left.
    assert finding.evidence[0].value == 4 << 20
    assert finding.gain.high == pytest.approx(0.6, abs=0.001)


def test_a_jax_job_that_reads_its_loss() -> None:
    means = {m.PROCESS_READBACK: 400.0}
    assert (
        judge(NAME, window(TAKEN, means=means, facts=JAX, reads=read("array"), lines=(LINE,)))
        is None
    )


@pytest.mark.parametrize(("kind", "fires"), [("cpu", True), ("tolist", True), ("item", False)])
def test_a_pytorch_job_that_takes_tensors_back(kind: str, fires: bool) -> None:
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    here = window(
        means=means, facts=TORCH, reads=read(kind), lines=(LINE, STEP), leaves=(LINE, STEP)
    )
    assert (judge(NAME, here) is not None) == fires


@pytest.mark.parametrize("samples", [100, 500])
def test_few_samples_are_less_sure(samples: int) -> None:
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    job = {"means": means, "facts": TORCH, "lines": (LINE, STEP), "leaves": (LINE, STEP)}
    finding = found(NAME, window(reads=read("cpu"), looks=samples, **job))
    assert finding.gain is not None
    error = 2 * (0.6 * 0.4 / samples) ** 0.5
    assert finding.gain.low == pytest.approx(0.9 * (0.6 - error))
    assert finding.gain.high == pytest.approx(0.6 + error)


def at_the_line(share: float) -> Window:
    """Return a job of PyTorch that was found so much on a line that takes whole tensors."""
    lines = (replace(LINE, share=share), replace(STEP, share=1 - share))
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    return window(means=means, facts=TORCH, reads=read("cpu"), lines=lines, leaves=lines, looks=100)


def test_a_few_samples_of_the_line_are_no_reason_to_act() -> None:
    few, many = found(NAME, at_the_line(0.06)), found(NAME, at_the_line(0.2))
    assert few.severity is Severity.LOW
    assert many.severity is None


@pytest.mark.parametrize(
    ("line", "is_sure"),
    [
        ("    kept.append(out.detach().cpu())", True),
        ("    probs = out.softmax(-1).cpu()", False),
        ("    probs = torch.exp(out / 0.8).cpu().numpy()", False),
        ("    rows = (out @ table).tolist()", False),
    ],
)
def test_what_a_line_computes_is_not_what_it_reads(
    line: str, is_sure: bool, tmp_path: Path
) -> None:
    """What softmax takes stays, wherever its result goes."""
    file = tmp_path / "train.py"
    file.write_text("import torch\nfor out in batches:\n" + line)
    lines = tuple(
        replace(each, file=str(file), line=number) for each, number in ((LINE, 3), (STEP, 2))
    )
    reads = tuple(replace(each, file=str(file), line=3) for each in read("cpu"))
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    here = window(means=means, facts=TORCH, reads=reads, lines=lines, leaves=lines, looks=MANY)
    finding = found(NAME, here)
    assert finding.gain is not None
    assert (finding.gain.low > 0) is is_sure
    assert finding.severity is (None if is_sure else Severity.LOW)


def test_chance_alone_does_not_make_an_array_large() -> None:
    job = {"means": {m.PROCESS_READBACK: 400.0 * (1 << 20)}, "facts": JAX, "reads": read("array")}
    lines = (replace(LINE, share=0.02), replace(STEP, share=0.98))
    assert judge(NAME, window(TAKEN, lines=lines, looks=100, **job)) is None


def test_a_short_list_is_no_large_array() -> None:
    means = {m.PROCESS_SYNCS: 10.0, m.JOB_STEPS: 10.0}
    job = {"means": means, "facts": TORCH, "lines": (LINE, STEP), "leaves": (LINE, STEP)}
    assert judge(NAME, window(reads=read("tolist", ns=30_000), **job)) is None
    assert judge(NAME, window(reads=read("tolist", ns=3_000_000), **job)) is not None


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_job_that_draws_a_list_of_numbers_for_each_batch(side: str) -> None:
    assert judge(NAME, recorded(f"gc_pauses/{side}_torch")) is None


def test_a_gpu_that_waits_for_large_copies() -> None:
    copy = {"direction": "device to host", "memory": "pageable", "count": 10, "bytes": 10 << 24}
    taken = answer(
        {Slice.COMPUTE: 0.6, Slice.EXPOSED_COPY: 0.3, Slice.IDLE_SYNC: 0.1},
        kind="gpu",
        details={Slice.EXPOSED_COPY: {"device to host, pageable": 0.3}},
        copies=[copy],
    )
    finding = found(NAME, window(taken))
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.3, 0.4), abs=0.001)
    assert is_silent(NAME, window(taken | {"copies": [copy | {"bytes": 10}]}))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(means={m.PROCESS_READBACK: 1e9}, inside=True))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.expected >= 0.2
    assert finding.where[0].file.endswith(f"before_{framework}.py")
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_resnet50_workers4", "mi300_ddp"])
def test_traces_that_read_nothing_large(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_lines_of_the_framework_are_left_out() -> None:
    means = {m.PROCESS_READBACK: 400.0 * (1 << 20)}
    numpy = "/venv/lib/python3.11/site-packages/numpy/lib/format.py"
    reads = (ReadBack("array", numpy, 7, "asarray", 900, 10**9), *read("array"))
    finding = found(NAME, window(TAKEN, means=means, facts=JAX, reads=reads, lines=(LINE, STEP)))
    assert [place.file for place in finding.where] == [FILE]


LIB = "/venv/lib/python3.11/site-packages"
USER, LOOP = CodeLine(FILE, 30, "train"), CodeLine(FILE, 29, "train")
COPIES = CodeLine(f"{LIB}/jax/_src/array.py", 620, "_value")
# What a line that reads may call before: a whole model, in three frameworks' ways.
CALLS = {
    "keras": CodeLine(f"{LIB}/tensorflow/python/eager/execute.py", 53, "quick_execute"),
    "a pipeline": CodeLine(f"{LIB}/tensorflow/python/ops/gen_dataset_ops.py", 3, "make_iterator"),
    "jax": CodeLine(f"{LIB}/jax/_src/pjit.py", 139, "_run_python_pjit"),
}


def reading(inner: CodeLine, share: float) -> Window:
    """Return a job of large reads that is found so much in something below the line that reads."""
    seen = stacks((inner, (USER, LOOP), 1000 * share), (LOOP, (LOOP,), 1000 * (1 - share)))
    means = {m.PROCESS_READBACK: 400.0 * (1 << 20), m.JOB_STEPS: 100.0}
    return window(
        means=means, facts=JAX, reads=read("array", ns=100), stacks=seen,
        lines=(replace(LINE, share=share), replace(STEP, share=1 - share)), looks=MANY, inside=True,
    )  # fmt: skip


@pytest.mark.parametrize("style", CALLS)
def test_a_model_that_is_called_where_its_output_is_read_is_no_copy(style: str) -> None:
    assert judge(NAME, reading(CALLS[style], 0.4)) is None


def test_the_copy_itself_is_one() -> None:
    finding = found(NAME, reading(COPIES, 0.4))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.4, abs=0.02)
