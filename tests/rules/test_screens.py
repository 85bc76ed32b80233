"""Each rule's finding as a person reads it: compared with a screen that was looked at.

``WHYIDLE_UPDATE=1`` writes the screens again, after a change of words or of recordings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs
from rich.console import Console

from tests.rules import (
    device_memory,
    test_clock_throttled,
    test_cold_compile_cache,
    test_costly_setting,
    test_cpu_fallback,
    test_cpu_starved,
    test_cudnn_autotune_thrashes,
    test_data_parallel_one_process,
    test_double_precision,
    test_exposed_communication,
    test_few_cpus_allowed,
    test_full_precision_matmul,
    test_gpu_error,
    test_job_stands_still,
    test_memory_limit_near,
    test_memory_not_released,
    test_memory_stalls,
    test_misaligned_shards,
    test_numa_far_from_gpu,
    test_optimizer_on_cpu,
    test_pageable_copies,
    test_replicated_parameters,
    test_shared_gpu_contention,
    test_slow_pcie_link,
    test_slowing_down,
    test_tensorflow_takes_all_memory,
    test_transfer_stalled_by_full_memory,
    test_wasted_energy,
    test_zeroed_gradients,
)
from tests.rules.phases import LIB
from tests.rules.windows import ROOT, answer, pairs, recorded, stacks, window
from whyidle.monitor import rules
from whyidle.monitor.core import metrics as m
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render.finding_text import first_sentence
from whyidle.monitor.render.findings import screen
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.window import Window

SCREENS: Final = ROOT / "tests" / "data" / "findings"
WIDTH: Final = 100
BUILT = list(rules.load())


# Faults that need what a demo on a CPU does not have.
def _host_code() -> Window:
    line = CodeLine("/job/train.py", 76, "finish_episode")
    step = CodeLine("/venv/lib/python3.11/site-packages/torch/_tensor.py", 5, "backward")
    codec = CodeLine("/venv/lib/python3.11/site-packages/PIL/Image.py", 5, "save")
    samples = stacks((codec, (line,), 260), (step, (line,), 740))
    return window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)


def _aside(line: CodeLine, share: int, library: str, function: str) -> Window:
    step = CodeLine(f"{LIB}/torch/_tensor.py", 5, "backward")
    inside = CodeLine(f"{LIB}/{library}", 5, function)
    samples = stacks(
        (inside, (line,), share), (step, (CodeLine(line.file, 40, "train"),), 1000 - share)
    )
    return window(stacks=samples, facts={"torch": {"backend": "cpu"}}, inside=True)


BY_HAND: Final[dict[str, Callable[[], Window]]] = {
    "activations_fill_memory": device_memory.torch,
    "fragmented_memory": lambda: device_memory.torch(
        {m.PROCESS_POOL_SPLIT: 14.0 * device_memory.GB, m.PROCESS_ALLOC_RETRIES: 0.3}
    ),
    "memory_not_released": lambda: device_memory.torch(
        gpus=(device_memory.gpu(test_memory_not_released.JOB, test_memory_not_released.NOTEBOOK),)
    ),
    "replicated_parameters": lambda: device_memory.torch(
        facts=test_replicated_parameters.COPIED, failed=2
    ),
    "transfer_stalled_by_full_memory": lambda: test_transfer_stalled_by_full_memory.traced(
        test_transfer_stalled_by_full_memory.trace(50_000_000, 0.05),
        test_transfer_stalled_by_full_memory.trace(200_000_000, 0.25),
        means={m.PROCESS_ALLOC_RETRIES: 0.3},
    ),
    "clock_throttled": lambda: window(
        gpus=(test_clock_throttled._gpu(GPU_THROTTLED_BRAKE=0.8, GPU_UTILISATION=1.0),)
    ),
    "tensorflow_takes_all_memory": lambda: test_tensorflow_takes_all_memory.job(shared=True),
    "cold_compile_cache": lambda: test_cold_compile_cache.of(140),
    "costly_setting": lambda: test_costly_setting.of(
        ranks=8, variables={"NCCL_P2P_DISABLE": "1"}, deterministic_algorithms=True
    ),
    "cudnn_autotune_thrashes": test_cudnn_autotune_thrashes.of,
    "zeroed_gradients": test_zeroed_gradients.of,
    "optimizer_on_cpu": lambda: test_optimizer_on_cpu.of(test_optimizer_on_cpu.DEEPSPEEDS),
    "cpu_fallback": lambda: window(
        facts=test_cpu_fallback._jax(), gpus=(test_cpu_fallback.GPU,), inside=True
    ),
    "cpu_starved": lambda: window(
        means={
            **test_cpu_starved.CALM,
            **test_cpu_starved.LIMITED,
            m.JOB_WAITING_THREADS: 6.5,
        },
        facts={"torch": {"loaders": [{"workers": 8}]}},
    ),
    "double_precision": lambda: test_double_precision.of("torch", {"float64": 25_000_000}),
    "host_code": _host_code,
    "exposed_communication": lambda: window(
        answer(test_exposed_communication._slices(0.3), kind="gpu"), kind="file"
    ),
    "few_cpus_allowed": lambda: window(means=test_few_cpus_allowed.SLURM, pid=4711),
    "full_precision_matmul": lambda: test_full_precision_matmul.on_gpu("f32"),
    "gpu_error": lambda: test_gpu_error._window(
        xid=[test_gpu_error._xid(79)], gpu_lost=[test_gpu_error.GONE]
    ),
    "job_stands_still": lambda: test_job_stands_still.of(
        test_job_stands_still.BARRIER,
        Chain((CodeLine("/job/data.py", 7, "wait_for_shard"),), test_job_stands_still.LOCK.leaf),
    ),
    "memory_limit_near": lambda: window(means=test_memory_limit_near.NEAR),
    "memory_stalls": lambda: window(means=test_memory_stalls.SLOWED),
    "growing_sequence": lambda: _aside(
        CodeLine("/job/chat.py", 18, "reply"), 720, "transformers/generation/utils.py", "generate"
    ),
    "metrics_on_host": lambda: _aside(
        CodeLine("/job/train.py", 52, "train"), 240, "sklearn/metrics/_ranking.py", "roc_auc_score"
    ),
    "slow_tokenizer": lambda: _aside(
        CodeLine("/job/serve.py", 33, "reply"), 280, "transformers/tokenization_python.py", "f"
    ),
    "validation_too_long": lambda: _aside(
        CodeLine("/job/train.py", 61, "run_validation"), 310, "torch/nn/modules/module.py", "f"
    ),
    "misaligned_shards": lambda: window(test_misaligned_shards._trace(80, 40, 40, 40), kind="file"),
    "slowing_down": lambda: test_slowing_down.of([0.1 + 0.004 * n for n in range(40)]),
    "data_parallel_one_process": lambda: test_data_parallel_one_process.traced(
        7, 7, 7, 7, calls={"DataParallel.forward": 1.0, "Broadcast": 1.0}
    ),
    "shared_gpu_contention": lambda: window(
        gpus=(
            test_shared_gpu_contention.gpu(
                test_shared_gpu_contention.OURS, test_shared_gpu_contention.neighbour(0.66)
            ),
        )
    ),
    "slow_pcie_link": lambda: window(
        test_slow_pcie_link.copies(13.0), gpus=(test_slow_pcie_link.gpu(4, 8),)
    ),
    "wasted_energy": lambda: test_wasted_energy.starved(412.0),
    "numa_far_from_gpu": lambda: window(
        means=test_numa_far_from_gpu.FAR, gpus=(test_numa_far_from_gpu.GPU,)
    ),
    "pageable_copies": lambda: window(test_pageable_copies.PAGEABLE, kind="file"),
}


def drawn(name: str) -> str:
    """Return the page about one rule's first finding, alone."""
    recordings = pairs(name)
    assert recordings or name in BY_HAND, f"{name} has no recorded demo, and no window in BY_HAND"
    faulty = recorded(f"{name}/before_{recordings[0]}") if recordings else BY_HAND[name]()
    answer = as_json(diagnose(faulty, only=(name,)))
    assert {finding.rule for finding in answer.findings} == {name}
    for finding in answer.findings:
        assert len(finding.title) <= 60
        assert all(len(first_sentence(x.text)) <= 70 for x in finding.fixes.values())
        # Lines break by the folder.
        finding.where[:] = [structs.replace(x, file=Path(x.file).name) for x in finding.where]
    return screen(answer, console=Console(width=WIDTH, highlight=False, color_system=None))


@pytest.mark.parametrize("name", BUILT)
def test_a_finding_looks_as_it_did(name: str) -> None:
    file, text = SCREENS / f"{name}.txt", drawn(name)
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("WHYIDLE_UPDATE") == "1":
        SCREENS.mkdir(exist_ok=True)
        file.write_text(text)
    asked = "WHYIDLE_UPDATE=1 .venv/bin/python -m pytest -q tests/rules/test_screens.py"
    assert file.exists(), f"no screen yet: look at it after {asked}"
    assert text == file.read_text(), f"another screen: where it is meant, {asked}"


def test_no_screen_is_left_of_a_rule_that_is_gone() -> None:
    assert {path.stem for path in SCREENS.iterdir()} == set(BUILT)
