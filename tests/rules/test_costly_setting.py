"""The rule costly_setting, and the table that it shares with debugging_mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.agents.jax import probe as jax_probe
from whyidle.agents.tensorflow import probe as tensorflow_probe
from whyidle.agents.torch import probe as torch_probe
from whyidle.monitor.core import settings
from whyidle.monitor.core.finding import Severity, SourceLine
from whyidle.monitor.core.settings import SETTINGS, Purpose, Where
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.window import Window

NAME, DEBUGGING = "costly_setting", "debugging_mode"
FIXES = {
    "pytorch": (
        "import torch\ntorch.use_deterministic_algorithms(True)",
        "assert not torch.are_deterministic_algorithms_enabled()",
    ),
    "jax": ("import jax", "assert not jax.config.read('jax_disable_most_optimizations')"),
}
GPU = SeenGpu("0", "NVIDIA H100", owned=True, means={})


def of(
    framework: str = "torch", *, gpu: bool = True, ranks: int = 1, variables: Any = None,
    **facts: Any,
) -> Window:  # fmt: skip
    """Return a job of a framework, with facts and variables of its environment."""
    probe = "jax" if framework == "jax" else "torch"
    backend = {"backend": "cuda" if gpu else "cpu", "world_size": ranks, "processes": ranks}
    said = {probe: backend | facts}
    return window(facts=said, gpus=(GPU,) if gpu else (), settings=variables)


def said(name: str, job: Window) -> list[Any]:
    return [each.value for each in found(name, job).evidence]


@pytest.mark.parametrize(
    ("job", "severity"),
    [
        (of(deterministic_algorithms=True), Severity.INFO),
        (of(cudnn_deterministic=True), Severity.INFO),
        (of("jax", disable_most_optimizations=True, gpu=False), Severity.MEDIUM),
        (of("jax", variables={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}), Severity.MEDIUM),
        (of("jax", variables={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}), Severity.INFO),
        (of("jax", variables={"XLA_FLAGS": "--xla_gpu_autotune_level=0"}), Severity.LOW),
        (of("jax", variables={"XLA_FLAGS": "--xla_gpu_deterministic_ops"}), Severity.INFO),
        (of(ranks=8, variables={"NCCL_P2P_DISABLE": "1"}), Severity.LOW),
        (of(variables={"NVIDIA_TF32_OVERRIDE": "0"}), Severity.LOW),
    ],
)
def test_what_is_set_is_found_without_a_gain(job: Window, severity: Severity) -> None:
    finding = found(NAME, job)
    assert (finding.gain, finding.severity) == (None, severity)
    assert finding.title
    assert finding.frameworks == job.frameworks


@pytest.mark.parametrize(
    "job",
    [
        of(deterministic_algorithms=False, cudnn_deterministic=False),
        # It matters on a GPU, in more than one process, or to another framework.
        of(gpu=False, deterministic_algorithms=False, cudnn_deterministic=True),
        of(deterministic_algorithms=False, variables={"NCCL_P2P_DISABLE": "1"}),
        of(gpu=False, ranks=8, deterministic_algorithms=False, variables={"NCCL_IB_DISABLE": "1"}),
        of(deterministic_algorithms=False, variables={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        # As it is by itself.
        of("jax", disable_most_optimizations=False, variables={
            "XLA_PYTHON_CLIENT_ALLOCATOR": "bfc", "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
            "XLA_FLAGS": "--xla_gpu_autotune_level=4 --xla_gpu_deterministic_ops=false",
        }),
        of(ranks=8, deterministic_algorithms=False, variables={
            "NCCL_P2P_DISABLE": "0", "NVIDIA_TF32_OVERRIDE": "1", "TORCH_COMPILE_DISABLE": "0",
        }),
    ],
)  # fmt: skip
def test_jobs_without_such_a_setting(job: Window) -> None:
    assert judge(NAME, job) is None


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (of(variables={"CUDA_LAUNCH_BLOCKING": "1"}), "CUDA_LAUNCH_BLOCKING=1"),
        (of("jax", variables={"CUDA_LAUNCH_BLOCKING": "1"}), "CUDA_LAUNCH_BLOCKING=1"),
        # It is on whatever it says.
        (
            of(variables={"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}),
            "PYTORCH_NO_CUDA_MEMORY_CACHING=0",
        ),
        (
            of(ranks=2, gpu=False, variables={"TORCH_DISTRIBUTED_DEBUG": "detail"}),
            "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        ),
        (of(gpu=False, variables={"PYTHONTRACEMALLOC": "25"}), "PYTHONTRACEMALLOC=25"),
        (
            of(gpu=False, variables={"PYTHONMALLOC": "pymalloc_debug"}),
            "PYTHONMALLOC=pymalloc_debug",
        ),
        (of("jax", variables={"XLA_FLAGS": "--xla_dump_to=/tmp/x"}), "--xla_dump_to=/tmp/x"),
        (of(own_profiler=True), "a profiler of the job's own"),
        (of("jax", own_profiler=True), "a trace of the job's own"),
        (of("jax", log_compiles=True), "jax_log_compiles"),
        # Without an agent what it was started with is all that is known.
        (window(settings={"JAX_DEBUG_NANS": "True"}), "jax_debug_nans=True"),
    ],
)
def test_modes_for_finding_errors(job: Window, what: str) -> None:
    assert said(DEBUGGING, job) == [what]


@pytest.mark.parametrize(
    "job",
    [
        of(anomaly_detection=False, gpu=False, variables={"CUDA_LAUNCH_BLOCKING": "1"}),
        of(anomaly_detection=False, variables={"CUDA_LAUNCH_BLOCKING": "0"}),
        of(anomaly_detection=False, variables={"PYTHONMALLOC": "malloc"}),
        of(anomaly_detection=False, variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        of(anomaly_detection=False, ranks=8, variables={"TORCH_DISTRIBUTED_DEBUG": "INFO"}),
        # The job has switched it off since: what the framework says counts.
        of("jax", debug_nans=False, variables={"JAX_DEBUG_NANS": "1"}),
    ],
)
def test_what_takes_no_time_of_this_job(job: Window) -> None:
    assert judge(DEBUGGING, job) is None


def test_what_the_job_sets_itself_is_found_by_its_text_and_never_loud(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        """import os
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
# os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
if debug:
    os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
os.environ["HF_TOKEN"] = "sesame"
train()
"""
    )
    lines = (SourceLine(str(file), 7, "<module>", 0.9),)
    said = {"jax": {"backend": "cuda", "disable_most_optimizations": False}}
    finding = found(NAME, window(facts=said, gpus=(GPU,), lines=lines))
    assert [each.value for each in finding.evidence] == ["XLA_PYTHON_CLIENT_ALLOCATOR=platform"]
    assert finding.severity is Severity.LOW
    assert [place.line for place in finding.where] == [2]


def test_nothing_is_known() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(settings={}))
    assert cannot_judge(DEBUGGING, window(settings={}))


def test_what_to_type_is_python_or_of_the_shell() -> None:
    finding = found(
        NAME, of(deterministic_algorithms=True, variables={"NVIDIA_TF32_OVERRIDE": "0"})
    )
    assert finding.fixes is not None
    fix = finding.fixes["pytorch"]
    assert fix.code == "torch.use_deterministic_algorithms(False)"
    assert "Before the job starts: unset NVIDIA_TF32_OVERRIDE." in fix.text


def test_of_an_environment_only_the_table_is_kept() -> None:
    environment = {
        "HF_TOKEN": "hf_sesamesesamesesame", "AWS_SECRET_ACCESS_KEY": "sesame", "PATH": "/bin",
        "CUDA_LAUNCH_BLOCKING": "1", "PYTHONTRACEMALLOC": "9" * 1000,
        "XLA_FLAGS": "--xla_dump_to=/x --password=sesame --xla_gpu_autotune_level=0",
    }  # fmt: skip
    kept = settings.kept(environment)
    assert set(kept) == {"CUDA_LAUNCH_BLOCKING", "PYTHONTRACEMALLOC", "XLA_FLAGS"}
    assert kept["XLA_FLAGS"] == "--xla_dump_to=/x --xla_gpu_autotune_level=0"
    assert len(kept["PYTHONTRACEMALLOC"]) == settings.LONGEST
    assert "sesame" not in str(kept)


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.name)
def test_every_row_can_be_read_and_says_what_to_type(each: settings.Setting) -> None:
    assert each.fact or each.variable
    assert each.frameworks
    assert each.instead
    # What is loud without a gain is a mode for errors, an allocator or a compiler switched off.
    assert each.severity in {Severity.MEDIUM, Severity.LOW, Severity.INFO}
    assert not each.does.endswith(".")


def test_each_fact_of_the_table_is_one_that_an_agent_says() -> None:
    described = f"{jax_probe.__doc__} {torch_probe.__doc__} {tensorflow_probe.__doc__}"
    assert all(each.fact in described for each in SETTINGS if each.fact)
    assert {each.purpose for each in SETTINGS} == set(Purpose)
    assert {each.where for each in SETTINGS} == set(Where)
