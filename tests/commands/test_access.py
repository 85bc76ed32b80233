"""What a first user meets: a machine or container that lets no one in, sudo, and wrong pids."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import JOB, Monitor, lines, start_job
from whyidle.monitor.app import access, ps
from whyidle.monitor.app.jobs import Job as Listed
from whyidle.monitor.app.jobs import Jobs
from whyidle.monitor.attach.answers import OUTSIDE, PTRACE
from whyidle.monitor.core import paths
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

Job = subprocess.Popen[str]
NO_RIGHTS, SYS_PTRACE = "0", f"{1 << 19:x}"


def machine(root: Path, scope: str, rights: str = NO_RIGHTS) -> ProcFs:
    """A machine with this scope of Yama's; we have these capabilities on it."""
    (root / "sys/kernel/yama").mkdir(parents=True)
    (root / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    (root / "self").mkdir()
    (root / "self/status").write_text(f"CapEff:\t{rights:0>16}\n")
    return ProcFs(str(root))


@pytest.fixture
def is_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user, outside of containers."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(access, "_OF_CONTAINERS", ())
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name in ("WHYIDLE_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("is_user")
@pytest.mark.parametrize(
    ("scope", "rights", "what", "step"),
    [
        ("0", NO_RIGHTS, None, ""),
        ("1", SYS_PTRACE, None, ""),
        (
            "1",
            NO_RIGHTS,
            "lets only root",
            'sudo "$(command -v monitor)" attach 4711   or: monitor',
        ),
        (
            "2",
            NO_RIGHTS,
            "lets only root",
            'sudo "$(command -v monitor)" attach 4711   or: monitor',
        ),
        ("3", SYS_PTRACE, "lets no one", "monitor run -- python train.py"),
    ],
)
def test_what_a_machine_keeps_from_its_users(
    tmp_path: Path, scope: str, rights: str, what: str | None, step: str
) -> None:
    why = access.closed(machine(tmp_path, scope, rights), "4711")
    assert (why is None) is (what is None)
    if why is not None and what is not None:
        assert what in why.what
        assert step in why.next_step


@pytest.mark.usefixtures("is_user")
def test_root_is_told_where_the_recordings_of_its_user_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYIDLE_STATE_DIR", "/data/my runs")
    why = access.closed(machine(tmp_path, "1"))
    assert why is not None
    assert "sudo WHYIDLE_STATE_DIR='/data/my runs' \"$(command" in why.next_step


def test_a_container_is_opened_by_docker_or_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    why = access.closed(machine(tmp_path, "1"), "4711")
    assert why is not None
    docker, kubernetes, start = why.next_step.splitlines()
    assert "docker exec --privileged -u root -it CONTAINER monitor attach 4711" in docker
    assert "kubectl debug" in kubernetes
    assert "monitor run --" in start


@pytest.mark.usefixtures("is_user")
def test_the_list_of_jobs_answers_whether_one_can_attach(tmp_path: Path) -> None:
    shut = access.closed(machine(tmp_path, "1"))
    common = {"seconds": 9.0, "cpu_share": 0.1, "rss": 1}
    listed = [
        Listed(who(1), **common, attach=PTRACE, busy=0.07),
        Listed(who(2), **common, attach=OUTSIDE, not_inside="This machine lets only root ..."),
        Listed(who(3), **common, refused="belongs to root"),
        Listed(who(4), **common, attach=OUTSIDE, not_inside="Process 4 runs PyPy."),
    ]
    table = ps.job_table(listed, shut=shut).splitlines()
    attach = table[0].index("attach")
    assert [row[attach:].split()[0] for row in table[1:]] == ["yes", "sudo", "sudo", "sudo"]
    assert "7.0% idle" in table[1]
    assert ps.job_table(listed).splitlines()[4][attach:].split()[0] == "no"
    (note,) = ps.notes(Jobs([listed[3]], None, []), None)
    assert note == "4 can only be watched from outside: it runs PyPy."


def who(pid: int) -> Identity:
    return Identity(
        ProcessKey(pid, 1), 1, "python", "python train.py", "train.py", "me", "3.11",
        {"torch": "2.9"}, None, "R",
    )  # fmt: skip


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([shutil.which("sleep") or "sleep", "60"]) as process:
        yield process
        process.kill()


def test_what_is_no_training_job_is_not_recorded(
    monitor: Monitor, sleeping: subprocess.Popen[bytes]
) -> None:
    for words in (("attach", "--for", "1"), ("attach", "--background"), ("diagnose",)):
        done = monitor(words[0], sleeping.pid, *words[1:])
        assert done.returncode == Exit.USAGE
        assert f"Process {sleeping.pid} (sleep) is not a training job" in done.stderr
        assert f"monitor attach {sleeping.pid} --observe" in done.stderr
    assert lines(monitor("runs", "--json").stdout)[0]["runs"] == []
    assert monitor("attach", sleeping.pid, "--observe", "--for", "0.2").returncode == 0
    said = monitor("doctor", sleeping.pid).stdout
    assert f"You can attach: no. Process {sleeping.pid} (sleep) is not a training job" in said


def test_a_shell_that_started_python_may_become_a_job(monitor: Monitor) -> None:
    # The path of Python may hold spaces.
    script = '"$1" -c "$0"; :'
    with subprocess.Popen(
        ["sh", "-c", script, JOB, sys.executable],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        done = monitor("attach", shell.pid, "--for", "0.2")
        shell.communicate()
    assert done.returncode == 0, done.stderr


def test_the_last_recording_is_that_of_a_job(monitor: Monitor, tmp_path: Path, job: Job) -> None:
    library = tmp_path / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"x" * 4096)
    mapped = f"import mmap; f = open({str(library)!r}, 'r+b'); kept = mmap.mmap(f.fileno(), 0)\n"
    monitor("attach", job.pid, "--for", "0.2")
    assert lines(monitor("runs", "last", "--json").stdout)[0]["run"] == 1
    with start_job(mapped + JOB) as training:
        monitor("attach", training.pid, "--observe", "--for", "0.2")
        training.kill()
    monitor("attach", job.pid, "--for", "0.2")
    assert lines(monitor("runs", "last", "--json").stdout)[0]["run"] == 2
    monitor("run", "-q", "--", "true")
    assert lines(monitor("runs", "last", "--json").stdout)[0]["run"] == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_sudo_records_belongs_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    state = home / "state" / "whyidle"
    (state / "traces").mkdir(parents=True)
    elsewhere.write_text("not theirs")
    (state / "whyidle.db").write_text("")
    (state / "traces" / "link").symlink_to(elsewhere)
    os.link(elsewhere, state / "second-name")
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("WHYIDLE_STATE_DIR", str(state))
    paths.hand_over()
    assert (state / "whyidle.db").stat().st_uid == 0
    monkeypatch.setenv("SUDO_UID", "65534")
    paths.hand_over()
    given = (home / "state", state, state / "whyidle.db", state / "traces", state / "traces/link")
    assert {place.lstat().st_uid for place in given} == {65534}
    assert elsewhere.stat().st_uid == 0
    # A folder of root's own stays so.
    os.chown(home, 0, 0)
    os.chown(state / "whyidle.db", 0, 0)
    for place in (home / "state", state):
        os.chown(place, 0, 0)
    paths.hand_over()
    assert (state / "whyidle.db").stat().st_uid == 0
