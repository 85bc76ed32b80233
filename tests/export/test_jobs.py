"""Which processes are one job, and whose it is: from a /proc made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.export import gpus
from whyidle.monitor.export.gpus import GpuTime
from whyidle.monitor.export.jobs import Job, Jobs
from whyidle.monitor.processes.namespace import FIRST_NAMESPACE
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading

FACTS = tuple(GpuFacts(str(n), "H200", uuid=f"GPU-{n}") for n in range(4))


class Machine:
    """A /proc; a process begins at a hundred times its pid."""

    def __init__(self, root: Path, namespace: str = FIRST_NAMESPACE) -> None:
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        (root / "self" / "ns" / "pid").symlink_to(namespace)
        self.fs = ProcFs(str(root))

    def start(self, pid: int, parent: int = 1, maps: str = "", **environment: str) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        rest = ["0"] * 40
        rest[0], rest[1], rest[19] = "S", str(parent), str(100 * pid)
        (folder / "stat").write_text(f"{pid} (python) {' '.join(rest)}")
        (folder / "cmdline").write_text("python\0train.py\0")
        (folder / "maps").write_text(maps)
        (folder / "status").write_text("Uid:\t0\t0\t0\t0\n")
        (folder / "environ").write_text("\0".join(f"{k}={v}" for k, v in environment.items()))


def on(**pids: tuple[int, ...]) -> dict[str, GpuReading]:
    """Return who the driver lists: gpu0=(7,)."""
    return {
        name.removeprefix("gpu"): GpuReading(
            processes={pid: Reading({m.PROCESS_GPU_MEMORY: 1e9}) for pid in listed}
        )
        for name, listed in pids.items()
    }


def key(pid: int) -> ProcessKey:
    return ProcessKey(pid, 100 * pid)


def found(
    machine: Machine, readings: dict[str, GpuReading], *recorded: tuple[int, int]
) -> dict[int, Job]:
    known = {key(member): key(root) for member, root in recorded}
    jobs = Jobs(machine.fs).find(FACTS, readings, known, 0.0)
    return {job.key.pid: job for job in jobs}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_two_jobs_of_one_shell_are_two(machine: Machine) -> None:
    machine.start(5)
    machine.start(7, parent=5)
    machine.start(8, parent=5)
    jobs = found(machine, on(gpu0=(7,), gpu1=(8,)))
    assert {pid: set(job.gpus) for pid, job in jobs.items()} == {7: {"0"}, 8: {"1"}}


def test_the_workers_of_a_launcher_are_one(machine: Machine) -> None:
    machine.start(5)
    for rank in range(4):
        machine.start(10 + rank, parent=5, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4")
    jobs = found(machine, on(gpu0=(10,), gpu1=(11,), gpu2=(12,), gpu3=(13,)))
    assert {pid: set(job.gpus) for pid, job in jobs.items()} == {5: {"0", "1", "2", "3"}}
    assert jobs[5].memory == 4e9


def test_what_a_process_on_a_gpu_starts_is_its_own(machine: Machine) -> None:
    machine.start(7)
    machine.start(8, parent=7)
    machine.start(9, parent=8)
    jobs = found(machine, on(gpu0=(7, 9)))
    assert list(jobs) == [7]
    assert jobs[7].gpus == {"0": 2e9}


def test_a_recording_says_what_its_job_is(machine: Machine) -> None:
    machine.start(5)
    machine.start(6, parent=5)
    machine.start(7, parent=6)
    machine.start(8)
    jobs = found(machine, on(gpu0=(7,)), (5, 5), (8, 8))
    # One on a GPU, by its ancestor; one on none.
    assert {pid: set(job.gpus) for pid, job in jobs.items()} == {5: {"0"}, 8: set()}
    assert set(found(machine, on(gpu0=(7,)), (7, 5))) == {5}


def test_schedulers_say_whose_it_is(machine: Machine) -> None:
    machine.start(7, SLURM_JOB_ID="41", SLURM_PROCID="0", SLURM_NTASKS="8")
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}
    machine.start(8, POD_NAMESPACE="research", **pod)
    machine.start(9, HOSTNAME="node7")
    jobs = found(machine, on(gpu0=(7,), gpu1=(8,), gpu2=(9,)))
    assert jobs[7].owner.slurm_job == "41"
    assert (jobs[8].owner.pod, jobs[8].owner.namespace) == ("train-0", "research")
    assert jobs[9].owner.pod == ""


def test_a_pid_of_another_namespace_is_no_process_here(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "pid:[4026532999]")
    machine.start(7)
    jobs = Jobs(machine.fs)
    assert jobs.find(FACTS, on(gpu0=(7, 99)), {}, 0.0) == []
    assert jobs.strangers == {"0": 2}


def test_a_process_is_looked_at_seldom(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading its maps holds its memory lock: a day of looks reads them a few times."""
    machine.start(5)
    machine.start(7, parent=5, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
    read: list[int] = []

    def maps(pid: int) -> set[str]:
        read.append(pid)
        return set()

    monkeypatch.setattr(machine.fs, "mapped_files", maps)
    jobs = Jobs(machine.fs)
    for second in range(86_400 // 60):
        jobs.find(FACTS, on(gpu0=(7,)), {}, second * 60.0)
    assert read.count(7) == 1
    assert read.count(5) == 4


def test_a_pid_that_was_reused_is_another_job(machine: Machine) -> None:
    machine.start(7)
    jobs = Jobs(machine.fs)
    (one,) = jobs.find(FACTS, on(gpu0=(7,)), {}, 0.0)
    stat = machine.root / "7" / "stat"
    stat.write_text(stat.read_text().replace(" 700 ", " 900 "))
    (other,) = jobs.find(FACTS, on(gpu0=(7,)), {}, 1.0)
    assert one.name != other.name


def test_unknown_power_is_no_energy_of_zero() -> None:
    time = GpuTime()
    time.take(GpuReading(Reading({m.GPU_UTILISATION: 0.5, m.GPU_POWER: 100.0})), 2.0)
    labels = {"0": {"gpu": "0"}}

    def series(name: str) -> list[float]:
        (family,) = [x for x in gpus.families(labels, {}, {"0": time}) if x.name == name]
        return [value for _, _, value in family.samples]

    assert series("whyidle_gpu_idle_seconds_total") == [0, 1]
    assert series("whyidle_gpu_idle_joules_total") == [0, 100]
    time.take(GpuReading(Reading({m.GPU_UTILISATION: 0.5})), 2.0)
    assert series("whyidle_gpu_idle_seconds_total") == [0, 2]
    assert series("whyidle_gpu_idle_joules_total") == []
    assert series("whyidle_gpu_idle_cost_total") == []
    # Of a GPU that says nothing no time is counted, and of one whose processes are hidden it is.
    time.take(GpuReading(), 2.0)
    time.take(GpuReading(Reading({m.GPU_UTILISATION: 0.0}), processes_unknown="hidden"), 2.0)
    assert series("whyidle_gpu_idle_seconds_total") == [0, 2, 2]
    assert time.is_held_idle is None


def test_a_step_is_that_of_the_control_group_else_of_the_environment(machine: Machine) -> None:
    """An environment may be left over from another job; a control group is the kernel's."""
    outer = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "3"}
    groups = {
        7: "",
        8: "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n",
        9: "9:cpuset:/slurm/uid_0/job_42\n",
        10: "9:cpuset:/slurm/uid_0/job_41\n",
    }
    for pid, text in groups.items():
        machine.start(pid, **outer)
        (machine.root / str(pid) / "cgroup").write_text(text)
    jobs = found(machine, on(gpu0=tuple(groups)))
    steps = {pid: (job.owner.slurm_job, job.owner.slurm_step) for pid, job in jobs.items()}
    assert steps == {7: ("41", "3"), 8: ("42", "0"), 9: ("42", ""), 10: ("41", "3")}
