"""Why a job ended, asked of processes that did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import start_job
from tests.link.conftest import FS, key_of
from whyidle.monitor.processes.job_end import JobEnd
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

QUITS = "import sys; print('ready', flush=True); sys.exit(int(sys.stdin.readline()))"


def no_oom() -> int | None:
    return None


def ending(job: subprocess.Popen[str], oom: Callable[[], int | None] = no_oom) -> JobEnd:
    found = JobEnd(Target(key_of(job.pid), FS), oom)
    assert not found.look()
    return found


def wait_unreaped(job: subprocess.Popen[str]) -> None:
    """Wait until it is a zombie, and leave it one."""
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("code", [0, 3, 255])
def test_a_code_is_seen_as_long_as_nobody_has_asked_for_it(code: int) -> None:
    with start_job(QUITS) as job:
        found = ending(job)
        assert job.stdin is not None
        job.stdin.write(f"{code}\n")
        job.stdin.flush()
        wait_unreaped(job)
        assert found.reason() == f"job ended: exit code {code}"
        assert found.code == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_named(number: signal.Signals) -> None:
    with start_job(QUITS) as job:
        found = ending(job)
        job.send_signal(number)
        wait_unreaped(job)
        assert found.reason() == f"job ended: killed by {number.name}"
        assert found.code == -number


def test_a_code_that_was_seen_in_time_stays_known() -> None:
    with start_job(QUITS) as job:
        found = ending(job)
        job.kill()
        wait_unreaped(job)
        found.look()
        job.wait()
        assert found.reason() == "job ended: killed by SIGKILL"


def test_who_was_reaped_has_ended_for_no_reason_that_can_be_seen() -> None:
    with start_job(QUITS) as job:
        found = ending(job)
        job.kill()
    unseen = "job ended: how is not visible from here (its parent took the exit code)"
    assert found.reason() == unseen
    assert found.code is None
    assert found.reason("exit") == "job ended: by itself (its parent took the exit code)"


def test_the_kernels_want_of_memory_is_named() -> None:
    with start_job(QUITS) as job:
        kills = iter([4, 4, 5, 5])
        found = ending(job, lambda: next(kills))
        job.kill()
        wait_unreaped(job)
        assert found.reason() == "job ended: killed by the kernel: out of memory"


def test_a_child_of_ours_has_its_own_exit_code() -> None:
    with start_job(QUITS) as job:
        found = ending(job)
        job.kill()
    assert found.reason(code=-9) == "job ended: killed by SIGKILL"
    assert found.reason(code=7) == "job ended: exit code 7"
    assert found.code == 7
    assert found.reason(code=-35) == "job ended: killed by signal 35"


def test_another_program_in_the_same_process_is_noticed_once() -> None:
    source = (
        "import os, sys; print('ready', flush=True); sys.stdin.readline();"
        f"os.execv({sys.executable!r}, ['python', '-c', {QUITS!r}])"
    )
    with start_job(source) as job:
        found = ending(job)
        assert not found.look()
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write("go\n")
        job.stdin.flush()
        assert job.stdout.readline() == "ready\n"
        assert found.look()
        assert not found.look()
        job.kill()


class Owners(ProcFs):
    """Processes that belong to whom the test says."""

    uid = 0

    def owner(self, pid: int) -> int:
        return self.uid


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [(0, 1000, "exit code 0"), (1000, 0, "how is not visible from here")],
)
def test_whether_a_code_is_seen_is_up_to_the_user_that_it_ended_as(
    before: int, after: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fs = Owners()
    fs.uid = before
    with start_job(QUITS) as job:
        target = Target(key_of(job.pid), fs)
        assert target.owner == before
        found = JobEnd(target, no_oom)
        assert not found.look()
        fs.uid = after
        assert job.stdin is not None
        job.stdin.write("0\n")
        job.stdin.flush()
        wait_unreaped(job)
        assert reason in found.reason()
