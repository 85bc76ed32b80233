"""Output that is closed, full or gone must not change what is recorded, nor a job's code."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.conftest import Monitor, command, lines
from whyidle.monitor.core.errors import Exit

Job = subprocess.Popen[str]


def shell(text: str, state: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state)}
    text = text.replace("$M", shlex.join(command()))
    return subprocess.run(
        ["bash", "-c", text], env=env, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "text",
    [
        "$M run --json -- sh -c 'exit 3' >/dev/full",
        "$M run -- sh -c 'exit 3' 2>/dev/full",
        "$M run -- sh -c 'exit 3' >&- 2>&-",
        "$M run --json -- sh -c 'exit 3' | head -c 0; exit ${PIPESTATUS[0]}",
    ],
)
def test_the_jobs_code_is_ours_whatever_becomes_of_the_summary(state: Path, text: str) -> None:
    assert shell(text, state).returncode == 3


def test_a_full_disk_behind_the_output_is_a_sentence(state: Path) -> None:
    done = shell("$M runs >/dev/full", state)
    assert done.returncode == Exit.STORAGE
    assert "output cannot be written" in done.stderr
    assert "defect" not in done.stderr


def test_closed_output_is_no_defect(state: Path) -> None:
    done = shell("$M runs >&-", state)
    assert done.returncode == 0
    assert done.stderr == ""


def test_output_that_fails_ends_only_the_show(monitor: Monitor, state: Path, job: Job) -> None:
    shell(f"$M attach {job.pid} --for 1 --hz 10 >/dev/full", state)
    answer = lines(monitor("runs", "last", "--json").stdout)[0]
    assert answer["end"] == "time limit"
    assert answer["ticks"] >= 4


def test_a_terminal_that_closes_ends_the_recording_properly(
    monitor: Monitor, state: Path, job: Job
) -> None:
    ours, terminal = pty.openpty()
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state), "TERM": "xterm"}

    def own_the_terminal() -> None:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command("attach", job.pid, "--hz", "10"),
        env=env, stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=own_the_terminal,  # noqa: PLW1509  no threads yet
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = b""
        while b"stop watching" not in shown:
            shown += os.read(ours, 65536)
        os.close(ours)
        process.wait()
    stored_state = lines(monitor("runs", "--json").stdout)[0]["runs"][0]["state"]
    assert stored_state == "terminal closed"


def test_nohup_is_respected(state: Path, monitor: Monitor, job: Job) -> None:
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state)}
    with subprocess.Popen(
        ["nohup", *command("attach", job.pid, "--json", "--hz", "10")],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        for _ in range(5):
            assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert lines(monitor("runs", "--json").stdout)[0]["runs"][0]["state"] == "stopped"


def test_many_interrupts_are_one(state: Path, monitor: Monitor, job: Job) -> None:
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state)}
    with subprocess.Popen(
        command("attach", job.pid, "--json", "--hz", "10"),
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        # One that comes while the end is shown, or Python itself ends, ends that: 130 for a shell.
        assert process.returncode in {Exit.OK, Exit.INTERRUPTED, -signal.SIGINT}
        assert "defect" not in process.stderr.read()
        process.stdout.read()
    assert lines(monitor("runs", "--json").stdout)[0]["runs"][0]["state"] == "stopped by the user"


@pytest.mark.parametrize("option", [("--hz", "nan"), ("--for", "nan"), ("--for", "inf")])
def test_no_number_is_no_number(monitor: Monitor, job: Job, option: tuple[str, str]) -> None:
    done = monitor("attach", job.pid, *option)
    assert done.returncode == Exit.USAGE


def test_a_label_may_be_any_bytes(monitor: Monitor, job: Job) -> None:
    done = monitor("attach", job.pid, "--for", "0.2", "--label", os.fsdecode(b"\xff\x1b[31m"))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout


def test_a_program_without_its_interpreter_is_a_sentence(monitor: Monitor, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    done = monitor("run", "--", script)
    assert done.returncode == 127
    assert "cannot be started" in done.stderr


def test_a_store_that_cannot_be_opened_does_not_keep_the_job_from_running(monitor: Monitor) -> None:
    env = {"WHYIDLE_STATE_DIR": "/proc/self/no"}
    done = monitor("run", "--", sys.executable, "-c", "print('ran'); exit(4)", env=env)
    assert done.stdout == "ran\n"
    assert done.returncode == 4
    assert "runs unrecorded" in done.stderr


def test_a_stopped_job_says_so(monitor: Monitor, job: Job) -> None:
    job.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, job.pid, os.WSTOPPED)
    done = monitor("attach", job.pid, "--for", "0.2")
    job.send_signal(signal.SIGCONT)
    assert "STOPPED" in done.stdout


def test_a_dead_recorder_that_nobody_reaped_is_dead(
    monitor: Monitor, state: Path, job: Job
) -> None:
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state)}
    with subprocess.Popen(
        command("attach", job.pid, "--json"), env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # It is a zombie now, and ours to reap; we have not.
        listed = lines(monitor("runs", "--json").stdout)[0]["runs"]
        assert listed[0]["state"] == "recorder died"
        assert monitor("stop").returncode == Exit.GONE


def test_doctor_changes_nothing(monitor: Monitor, state: Path, job: Job) -> None:
    assert monitor("doctor").returncode == 0
    assert not state.exists()
    monitor("attach", job.pid, "--for", "0.2")
    store = state / "whyidle.db"
    whole = bytearray(store.read_bytes())
    whole[8192:65536] = os.urandom(65536 - 8192)
    store.write_bytes(whole)
    done = monitor("doctor")
    assert done.returncode == Exit.STORAGE
    assert store.read_bytes() == bytes(whole)
    begun = monitor("attach", job.pid, "--background")
    assert "damaged" in begun.stderr
    assert monitor("stop").returncode == 0


def test_a_failure_in_the_background_is_reported_whole(
    monitor: Monitor, state: Path, job: Job
) -> None:
    state.mkdir(mode=0o700)
    (state / "background.log").write_text("\N{EN DASH}" * 40)
    done = monitor("attach", job.pid, "--background", "--require-gpu", env={"LD_LIBRARY_PATH": ""})
    if done.returncode == 0:
        monitor("stop")
        pytest.skip("this machine has an NVIDIA driver")
    assert done.stderr.startswith("monitor: There is no NVIDIA driver library")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_knows_few_letters_does_not_end_it(
    monitor: Monitor, job: Job, encoding: str
) -> None:
    done = monitor("attach", job.pid, "--for", "0.2", env={"PYTHONIOENCODING": encoding})
    assert done.returncode == 0, done.stderr
    assert "time limit" in done.stdout
