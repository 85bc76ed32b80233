import importlib.metadata
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import start_job
from whyidle.monitor.core.errors import Exit, NotPermitted, TargetGone, UsageProblem
from whyidle.monitor.processes.process import describe, frameworks_of, python_of, script_of
from whyidle.monitor.processes.procfs import ProcFs, parse_stat
from whyidle.monitor.processes.target import Target

# The distribution whose library is mapped.
LIBRARY_OF = {"torch": "torch", "jax": "jaxlib"}
RECORDED = ProcFs(str(Path(__file__).parent.parent / "data" / "proc" / "first"))


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/usr/bin/python3.11 -u -W ignore -X dev src/train.py", "src/train.py"),
        ("python -m pkg.train --x", "-m pkg.train"),
        ("python -c pass", "python -c"),
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun train.py"),
        ("python /usr/bin/torchrun --standalone train.py", "torchrun train.py"),
        ("python -m torch.distributed.run train.py", "-m torch.distributed.run train.py"),
        ("torchrun --nproc-per-node 2 -m pkg.train --lr 1", "torchrun -m pkg.train"),
        (
            "python -m torch.distributed.run --module pkg.train",
            "-m torch.distributed.run -m pkg.train",
        ),
        ("python -m accelerate.commands.launch train.py", "-m accelerate.commands.launch train.py"),
        ("accelerate launch --num_processes 2 train.py", "accelerate train.py"),
        ("python /opt/venv/bin/deepspeed --num_gpus 2 train.py", "deepspeed train.py"),
        ("mpirun -np 2 python train.py", "mpirun train.py"),
        ("mpirun -x PATH python3.11 -u -m pkg.train", "mpirun -m pkg.train"),
        ("/usr/bin/mpiexec.hydra -n 2 python train.py", "mpiexec.hydra train.py"),
        ("srun -m cyclic python train.py", "srun train.py"),
        ("srun --ntasks 8 bash run.sh", "srun"),
        ("uv run train.py", "uv train.py"),
        ("uv run --no-project python -m pkg.train", "uv -m pkg.train"),
        ("bash run.sh", "bash run.sh"),
        ("/bin/sh -e ./run.sh --lr 1", "sh ./run.sh"),
        ("bash -euo pipefail scripts/run.sh", "bash scripts/run.sh"),
        ("bash --rcfile x --norc run.sh", "bash run.sh"),
        ("zsh -- run.sh", "zsh run.sh"),
        ("dash -c pass", "dash -c"),
        ("bash -lc pass", "bash -c"),
        ("-bash", "bash"),
        ("bash -s x", "bash"),
        ("julia train.jl", "train.jl"),
        ("/opt/julia-1.10/bin/julia --project=. -t 4 -L marks.jl train.jl -e x", "train.jl"),
        ("julia +1.10 -O3 --threads 8 -- -odd.jl", "-odd.jl"),
        ("julia -e pass train.jl", "julia -e"),
        ("julia -p 4", "julia"),
        ("python", "python"),
    ],
)
def test_the_script_is_what_a_person_calls_the_job(line: str, script: str) -> None:
    assert script_of(line.split()) == script


def test_of_a_long_list_only_what_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("pswpin 7\npswpin_zero 8\npswpout 9\n")
    fs = ProcFs(str(tmp_path))
    assert fs.fields("vmstat", "pswpin") == {"pswpin": "7"}
    assert fs.fields("vmstat", "absent") == fs.fields("absent", "pswpin") == {}
    assert len(fs.fields("vmstat")) == 3
    every = RECORDED.fields("meminfo")
    some = ("MemAvailable", "MemTotal")
    assert RECORDED.fields("meminfo", *some) == {name: every[name] for name in some}


def test_a_name_with_parentheses_and_spaces_does_not_confuse_the_stat_line() -> None:
    raw = b"7 (a ) b (c) S 1 " + b" ".join(str(n).encode() for n in range(5, 60))
    stat = parse_stat(raw)
    assert (stat.pid, stat.name, stat.state, stat.parent) == (7, "a ) b (c", "S", 1)


def test_a_command_is_shown_as_it_would_be_typed() -> None:
    code = "import sys; print(); sys.stdin.read()"
    words = [sys.executable, "-uc", code, "--name", "it's $HOME", "*"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Before that it may not yet be the program that it is to become.
        process.stdout.readline()
        who = describe(process.pid)
        process.communicate()
    assert who is not None
    assert shlex.split(who.command) == words


def test_a_recorded_process_is_described_and_its_secret_is_not_kept() -> None:
    who = describe(10294, RECORDED)
    assert who is not None
    assert who.command == "python train.py --api-key '***'"
    assert who.script == "train.py"
    assert who.python == "3.11"
    assert who.frameworks == {}
    assert who.framework is None
    assert who.visible_gpus == "1"


def test_frameworks_and_versions_come_from_the_mapped_libraries(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    files = {
        f"{site}/torch/lib/libtorch_cpu.so",
        f"{site}/jaxlib/_jax.so",
        "/usr/lib/libjulia.so.1.11",
    }
    assert frameworks_of(files, "") == {"torch": "2.13.0+cpu", "jax": None, "julia": None}
    assert frameworks_of({"/usr/lib/libc.so.6", "/x/libtorchvision.so"}, "") == {}


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_real_framework_is_seen_in_a_running_job(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    with start_job(f"import {name}; print('ready', flush=True); input()") as job:
        who = describe(job.pid)
        job.kill()
    assert who is not None
    assert who.frameworks is not None
    assert set(who.frameworks) == {name}
    assert who.framework == f"{name} {importlib.metadata.version(LIBRARY_OF[name])}"


@pytest.mark.parametrize("text", ["abc", "-1", "0", "1.5", "", "12x"])
def test_no_number(text: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        Target.named(text)
    assert problem.value.code == Exit.USAGE
    assert "no process id" in problem.value.what


def test_gone() -> None:
    with start_job() as job:
        job.kill()
    with pytest.raises(TargetGone, match="There is no process"):
        Target.named(str(job.pid))


def test_a_zombie_says_so() -> None:
    with start_job("import os; print('ready', flush=True); os._exit(0)") as job:
        assert job.stdout is not None
        # Only read to the end, not reaped: from the end of its output on it is a zombie.
        job.stdout.read()
        while (stat := ProcFs().stat(job.pid)) is not None and stat.state != "Z":
            pass
        with pytest.raises(TargetGone, match="zombie"):
            Target.named(str(job.pid))


def test_a_thread_names_its_process() -> None:
    source = (
        "import threading; t = threading.Thread(target=input, daemon=True); t.start();"
        "print('ready', flush=True); t.join()"
    )
    with start_job(source) as job:
        thread = next(t for t in Path(f"/proc/{job.pid}/task").iterdir() if t.name != str(job.pid))
        with pytest.raises(UsageProblem, match=f"thread of process {job.pid}"):
            Target.named(thread.name)
        job.kill()


def test_a_foreign_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with start_job() as job:
        with pytest.raises(NotPermitted, match="belongs to") as problem:
            Target.named(str(job.pid))
        job.kill()
    assert problem.value.code == Exit.PERMISSION
    assert "sudo" in problem.value.next_step


def test_a_kernel_thread_is_no_job() -> None:
    if ProcFs().stat(2) is None:
        pytest.skip("no kernel threads are visible here")
    with pytest.raises(UsageProblem, match="kernel"):
        Target.named("2")


@pytest.mark.parametrize(
    ("exe", "python"),
    [
        ("/opt/julia/bin/julia", None),
        ("/opt/an_app_of_julias", None),
        # juliacall loads Julia into Python.
        ("/usr/bin/python3.11", "3.11"),
        ("/opt/own/bin/python", "3.11"),
    ],
)
def test_julia_with_a_python_inside_is_julia(exe: str, python: str | None) -> None:
    files = {"/usr/lib/libpython3.11.so.1.0", "/opt/julia/lib/libjulia.so.1.10"}
    assert python_of(exe, files) == python
    assert python_of(exe, files - {"/opt/julia/lib/libjulia.so.1.10"}) == "3.11"
