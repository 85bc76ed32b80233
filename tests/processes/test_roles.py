"""What a process of a job of several parts does in it, and which of them stands for all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from whyidle.monitor.processes.job import whole
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.roles import Order, Role, known, role_of, title_of
from whyidle.monitor.processes.target import Target


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("VLLM::EngineCore", Role.ENGINE),
        ("VLLM::EngineCore_DP3", Role.ENGINE),
        ("mine::EngineCore_0", Role.ENGINE),
        ("VLLM::Worker", Role.WORKER),
        ("VLLM::Worker_DP0_TP1", Role.WORKER),
        ("VLLM::APIServer_2", Role.FRONT),
        ("VLLM::DPCoordinator", Role.COORDINATOR),
        ("sglang::scheduler_DP1_TP0", Role.WORKER),
        ("sglang::detokenizer", Role.DETOKENIZER),
        ("sglang::data_parallel_controller", Role.COORDINATOR),
        ("sglang::tokenizer_worker:41", Role.FRONT),
        ("ray::WorkerDict.actor_rollout_update_actor", Role.TRAINER),
        ("ray::PolicyModelActor.fit", Role.TRAINER),
        ("ray::RayWorkerWrapper.execute_method", Role.WORKER),
        ("ray::vLLMHttpServer", Role.ROLLOUT),
        ("ray::AgentLoopWorker.generate_sequences", Role.ROLLOUT),
        ("ray::RewardLoopWorker", Role.REWARD),
        ("ray::TaskRunner.run", Role.LAUNCHER),
        ("/opt/tritonserver/backends/python/triton_python_backend_stub", Role.WORKER),
    ],
)
def test_the_title_says_which_part_it_is(title: str, role: Role) -> None:
    assert role_of(title_of([title, "rest"])) is role


@pytest.mark.parametrize(
    "arguments", [[], ["python", "train.py"], ["ray::IDLE"], ["Worker"], ["python", "VLLM::Worker"]]
)
def test_whatever_else_runs_is_no_part(arguments: list[str]) -> None:
    assert title_of(arguments) is None
    assert role_of(None) is None


def test_another_versions_part_is_none() -> None:
    assert known("worker") is Role.WORKER
    assert known("conductor") is None
    assert known(None) is None


def test_who_computes_comes_first_and_who_hands_on_last() -> None:
    order = Order([None, Role.ENGINE, Role.WORKER])
    front, engine, worker = (
        order.place(role, trains=False) for role in (None, Role.ENGINE, Role.WORKER)
    )
    assert worker < engine < front
    assert order.place(Role.COORDINATOR, trains=False) > front


def test_what_trains_stands_with_those_that_compute() -> None:
    order = Order([None, Role.WORKER])
    assert order.place(None, trains=True) == order.place(Role.WORKER, trains=False)


def test_a_job_without_parts_keeps_its_order() -> None:
    order = Order([None, None])
    assert order.place(None, trains=True) == order.place(None, trains=False)


# From a part to the whole job --------------------------------------------------------------------
PYTHON = "/usr/bin/python3.11"


def process(proc: Path, pid: int, parent: int, *arguments: str, exe: str = PYTHON) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    fields = ["0"] * 49
    fields[0], fields[1], fields[19] = str(parent), str(pid), str(100 + pid)
    (folder / "stat").write_text(f"{pid} (python) S {' '.join(fields)}\n")
    (folder / "cmdline").write_text("\0".join(arguments) + "\0")
    (folder / "status").write_text(f"Name:\tpython\nTgid:\t{pid}\n")
    (folder / "exe").symlink_to(exe)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, 5, 1, "bash", exe="/usr/bin/bash")
    process(tmp_path, 10, 5, "python", "serve.py")
    process(tmp_path, 11, 10, "VLLM::EngineCore")
    process(tmp_path, 12, 11, "VLLM::Worker_TP0")
    return tmp_path


def begins(proc: Path, pid: int) -> int:
    fs = ProcFs(str(proc))
    return whole(Target.named(str(pid), fs)).pid


@pytest.mark.parametrize("pid", [10, 11, 12])
def test_whoever_is_named_the_whole_job_is_meant(proc: Path, pid: int) -> None:
    assert begins(proc, pid) == 10


def test_a_program_that_is_no_part_is_meant_itself(proc: Path) -> None:
    process(proc, 20, 10, "python", "train.py")
    assert begins(proc, 20) == 20


def test_a_part_whose_parent_has_gone_is_meant_itself(proc: Path) -> None:
    process(proc, 30, 5, "VLLM::EngineCore")
    process(proc, 31, 30, "VLLM::Worker")
    assert begins(proc, 31) == 30
    process(proc, 32, 99, "VLLM::EngineCore")
    assert begins(proc, 32) == 32


def test_what_only_starts_processes_is_passed_over(proc: Path) -> None:
    process(proc, 40, 10, "python", "-c", "from multiprocessing.forkserver import main; main(3)")
    process(proc, 41, 40, "sglang::scheduler_TP0")
    assert begins(proc, 41) == 10
    # Without whoever started it, it is no job.
    shutil.rmtree(proc / "10")
    assert begins(proc, 41) == 41
