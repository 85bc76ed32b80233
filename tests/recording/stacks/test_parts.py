"""Which part of a job a process is, by the loop that it runs."""

from __future__ import annotations

import pytest

from whyidle.monitor.processes.roles import Role
from whyidle.monitor.recording.stacks.parts import part_of

SITE = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("file", "function", "role"),
    [
        ("vllm/v1/executor/multiproc_executor.py", "worker_busy_loop", Role.WORKER),
        ("vllm/v1/engine/core.py", "run_busy_loop", Role.ENGINE),
        ("sglang/srt/managers/scheduler.py", "event_loop_overlap", Role.WORKER),
        ("sglang/srt/disaggregation/decode.py", "event_loop_normal_disagg_decode", Role.WORKER),
        ("sglang/srt/managers/detokenizer_manager.py", "run_detokenizer_process", Role.DETOKENIZER),
        ("vllm/v1/engine/core.py", "schedule", None),
        ("mine/engine.py", "run_busy_loop", None),
    ],
)
def test_the_loop_of_a_library_says_it(file: str, function: str, role: Role | None) -> None:
    assert part_of(f"{SITE}/{file}", function) == role
