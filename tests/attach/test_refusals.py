"""What keeps every method out of a process: a sentence, the next step, and a job left untouched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attach.targets import BUSY, Job, goes_on, mapped, running, start, target_of, tracer_of
from whyidle.monitor.attach import ladder, precheck
from whyidle.monitor.attach.answers import OUTSIDE, PTRACE, REMOTE_EXEC, Refusal
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

NOBODY = 65534
TRACE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0, ctypes.get_errno()
print("ready", flush=True)
sys.stdin.readline()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


def refused(target: Target) -> Refusal:
    """Return the refusal, which the whole ladder gives, too."""
    refusal = precheck.refusal(target)
    assert refusal is not None
    outcome = ladder.enter(target)
    assert outcome.method == OUTSIDE
    assert outcome.stops_ms == ()
    assert [r.refused for r in outcome.tried if r.name in {PTRACE, REMOTE_EXEC}] == [refusal] * 2
    return refusal


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def wait_for_state(job: Job | subprocess.Popen[bytes], states: str) -> None:
    while (stat := ProcFs().stat(job.pid)) is not None and stat.state not in states:
        pass


def copied(pid: int, root: Path) -> ProcFs:
    """Return a proc of one process that can be changed, with the machine's own settings."""
    (root / str(pid)).mkdir(parents=True)
    for name in ("stat", "status", "maps", "cmdline", "cgroup", "environ"):
        (root / str(pid) / name).write_bytes(Path(f"/proc/{pid}/{name}").read_bytes())
    (root / str(pid) / "exe").symlink_to(Path(f"/proc/{pid}/exe").readlink())
    (root / str(pid) / "root").mkdir()
    (root / "self").mkdir()
    (root / "self" / "status").write_text("CapEff:\t0000000000000000\n")
    return ProcFs(str(root))


def test_a_process_that_is_gone() -> None:
    with running() as job:
        target = target_of(job.pid)
    refusal = refused(target)
    assert refusal.what == f"Process {job.pid} has ended."
    assert refusal.next_step == "See what runs with: monitor ps"


def test_a_pid_that_somebody_else_has_now() -> None:
    with running() as job:
        before = mapped(job.pid)
        refusal = refused(target_of(job.pid, start_ticks=1))
        assert "another one has its pid now" in refusal.what
        assert mapped(job.pid) == before
        goes_on(job)


def test_a_zombie() -> None:
    job = start([sys.executable, "-c", "import os; print('ready', flush=True); os._exit(0)"])
    assert job.stdout is not None
    job.stdout.read()
    wait_for_state(job, "Z")
    assert "keeps it as a zombie" in refused(target_of(job.pid)).what
    job.communicate()


def test_a_stopped_process_stays_stopped_and_goes_on_later() -> None:
    with running() as job:
        job.send_signal(signal.SIGSTOP)
        wait_for_state(job, "T")
        before = mapped(job.pid)
        refusal = refused(target_of(job.pid))
        assert "is stopped" in refusal.what
        assert f"kill -CONT {job.pid}" in refusal.next_step
        wait_for_state(job, "T")
        assert mapped(job.pid) == before
        job.send_signal(signal.SIGCONT)
        goes_on(job)


@pytest.mark.ptrace
def test_a_process_that_somebody_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "PATIENCE_SECONDS", 0.05)
    with running() as job:
        with running_with(TRACE, str(job.pid)) as tracer:
            refusal = refused(target_of(job.pid))
            assert f"already traced by {tracer.pid} (python" in refusal.what
            assert tracer_of(job.pid) == str(tracer.pid)
        assert precheck.refusal(target_of(job.pid)) is None
        goes_on(job)


@contextmanager
def running_with(source: str, *arguments: str) -> Iterator[Job]:
    job = start([sys.executable, "-c", source, *arguments])
    try:
        yield job
    finally:
        job.communicate("\n")


@as_root
def test_a_process_of_another_user() -> None:
    with running() as job, acting_as(NOBODY):
        refusal = refused(target_of(job.pid))
        assert f"Process {job.pid} belongs to root" in refusal.what
        assert f'sudo "$(command -v monitor)" attach {job.pid}' in refusal.next_step
        goes_on(job)


@as_root
def test_a_process_whose_memory_is_protected() -> None:
    become = f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    with running(become + BUSY) as job, acting_as(NOBODY):
        refusal = refused(target_of(job.pid))
        assert "is protected" in refusal.what
        assert "sudo" in refusal.next_step
        assert "monitor run" in refusal.next_step
        goes_on(job)


def test_a_container_without_the_right_to_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    fs = copied(os.getpid(), tmp_path)
    (tmp_path / str(os.getpid()) / "maps").unlink()
    (tmp_path / str(os.getpid()) / "exe").unlink()
    refusal = precheck.refusal(target_of(os.getpid(), fs))
    assert refusal is not None
    assert "lacks SYS_PTRACE" in refusal.what
    assert "--cap-add SYS_PTRACE" in refusal.next_step


def test_no_python() -> None:
    with subprocess.Popen([shutil.which("sleep") or "sleep", "60"]) as job:
        try:
            # On a busy machine it waits for its own program from the disk at first.
            wait_for_state(job, "S")
            refusal = refused(target_of(job.pid))
        finally:
            job.kill()
    assert "(sleep) is no Python process" in refusal.what
    assert "--observe" in refusal.next_step


@pytest.mark.parametrize(
    ("exe", "maps", "said"),
    [
        ("/usr/bin/python3.8", "", "runs Python 3.8; the agent needs 3.9 or newer"),
        ("/opt/pypy3.10/bin/pypy3.10", "", "runs PyPy"),
        ("/usr/bin/app", "/opt/pypy/lib/libpypy3.10-c.so", "runs PyPy"),
        ("/usr/bin/app", "/lib/libpython3.7m.so.1.0", "runs Python 3.7"),
        ("/usr/bin/perl", "/lib/libc.so.6", "is no Python process"),
    ],
)
def test_other_interpreters(exe: str, maps: str, said: str, tmp_path: Path) -> None:
    fs = copied(os.getpid(), tmp_path)
    place = tmp_path / str(os.getpid())
    (place / "exe").unlink()
    (place / "exe").symlink_to(exe)
    (place / "maps").write_text(f"1000-2000 r-xp 00000000 08:01 77    {maps or exe}\n")
    refusal = precheck.refusal(target_of(os.getpid(), fs))
    assert refusal is not None
    assert said in refusal.what


def test_a_process_that_waits_for_its_disk(tmp_path: Path) -> None:
    fs = copied(os.getpid(), tmp_path)
    stat = tmp_path / str(os.getpid()) / "stat"
    head, _, rest = stat.read_text().rpartition(") ")
    stat.write_text(f"{head}) D{rest[1:]}")
    refusal = precheck.temporary(target_of(os.getpid(), fs))
    assert refusal is not None
    assert "waits for a disk" in refusal.what
    assert refusal == precheck.refusal(target_of(os.getpid(), fs))


@pytest.mark.parametrize(
    ("scope", "as_parent", "said", "steps"),
    [
        ("0", False, None, ()),
        (
            "1",
            False,
            "lets only root",
            ("sudo", "sysctl kernel.yama.ptrace_scope=0", "monitor run"),
        ),
        ("1", True, None, ()),
        ("2", True, "lets only root", ("sudo",)),
        ("3", True, "lets no one", ("monitor run",)),
    ],
)
def test_yama(
    scope: str, as_parent: bool, said: str | None, steps: tuple[str, ...], tmp_path: Path
) -> None:
    with running() as job:
        fs = copied(job.pid, tmp_path)
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
        refusal = precheck.yama(target_of(job.pid, fs), as_parent=as_parent)
    assert (refusal is None) is (said is None)
    if refusal is not None and said is not None:
        assert said in refusal.what
        assert all(step in refusal.next_step for step in steps)


def test_who_may_trace_is_not_kept_out_by_yama(tmp_path: Path) -> None:
    fs = copied(os.getpid(), tmp_path)
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    (tmp_path / "self/status").write_text("CapEff:\t0000000000080000\n")
    assert precheck.yama(target_of(os.getpid(), fs), as_parent=False) is None


@pytest.mark.parametrize(
    ("mode", "said"), [(0o555, "no folder for the agent's files"), (0o777, None)]
)
def test_a_job_that_may_write_nowhere(
    mode: int, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with running() as job:
        fs = copied(job.pid, tmp_path)
        status = tmp_path / str(job.pid) / "status"
        status.write_text(status.read_text().replace("Uid:\t0\t0", f"Uid:\t0\t{NOBODY}"))
        folder = tmp_path / str(job.pid) / "root" / "tmp"
        folder.mkdir()
        folder.chmod(mode)
        refusal = precheck.refusal(target_of(job.pid, fs))
        folder.chmod(0o755)
    assert (refusal.what if refusal else None) == said or (
        refusal is not None and said is not None and said in refusal.what
    )


def test_what_to_run_instead_is_the_jobs_own_line_without_its_secrets() -> None:
    with running_with("print('ready', flush=True); input()", "--api-key", "geheim") as job:
        line = precheck.run_instead(target_of(job.pid))
    assert line.startswith("monitor run -- ")
    assert "geheim" not in line
    # Wherever this Python lies, its path is printed in full.
    assert len(line.replace(sys.executable, "python")) < 100


def test_the_python_of_a_job_shows_in_its_files(tmp_path: Path) -> None:
    assert target_of(os.getpid()).python == sys.version_info[:2]
    for exe, maps, python in (
        ("/usr/bin/python3.11", "/lib/libc.so.6", (3, 11)),
        ("/data/python3.8-envs/a/bin/python3.12", "/lib/libpython3.12.so.1.0", (3, 12)),
        ("/data/python3.8-envs/a/bin/python3", "/lib/libpython3.12.so.1.0", (3, 12)),
        ("/usr/bin/python3.13t", "/lib/libc.so.6", (3, 13)),
        ("/usr/bin/python3.9 (deleted)", "/lib/libc.so.6", (3, 9)),
        ("/opt/app", "/opt/lib/python3.10/lib-dynload/_json.so", (3, 10)),
        ("/opt/app", "/opt/lib/libpython3.14.so.1.0", (3, 14)),
        ("/opt/app", "/home/python3.8/x.so", None),
    ):
        folder = tmp_path / python_name(exe, maps)
        fs = copied(os.getpid(), folder)
        place = folder / str(os.getpid())
        (place / "exe").unlink()
        (place / "exe").symlink_to(exe)
        (place / "maps").write_text(f"1000-2000 r-xp 00000000 08:01 77    {maps}\n")
        assert target_of(os.getpid(), fs).python == python


def python_name(exe: str, maps: str) -> str:
    return f"{exe}{maps}".replace("/", "_").replace(" ", "_")
