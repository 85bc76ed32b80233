"""`monitor attach` as its user calls it: a real subprocess, a real job, the fake driver."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Monitor, command, lines, start_job
from whyidle.monitor.core.errors import Exit

Tape = Callable[..., dict[str, str]]
Job = subprocess.Popen[str]


def spawn(state: Path, *arguments: object, env: dict[str, str] | None = None) -> Job:
    return subprocess.Popen(
        command(*arguments),
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_tick_is_one_json_object_and_the_last_the_summary(
    monitor: Monitor, job: Job, tape: Tape
) -> None:
    env = tape("one_gpu", trainer=job.pid)
    done = monitor("attach", job.pid, "--for", "1.2", "--hz", "2", "--json", env=env)
    assert done.returncode == 0, done.stderr
    *ticks, summary = lines(done.stdout)
    # A busy machine may swallow one.
    assert len(ticks) in {2, 3}
    gpu = ticks[-1]["gpus"][0]
    assert gpu["job"] is True
    assert gpu["utilisation_ratio"] == 0.97
    assert gpu["processes"][0]["pid"] == job.pid
    for part in (gpu, ticks[-1]["job"], ticks[-1]["host"], ticks[-1]["monitor"]):
        nulls = {
            name for name, value in part.items() if value is None and name != "processes_unknown"
        }
        assert nulls == set(part["unknown"])
    assert summary["summary"] is True
    assert summary["attached"] == "outside"
    assert summary["steps"] is None
    # The tape has a GPU at its power cap; on a busy machine the job lacks cores, and that is true.
    found = {f["rule"] for f in summary["findings"]}
    assert found - {"cpu_starved"} == {"clock_throttled"}
    nothing = {name for name, value in summary.items() if value is None or value == []}
    assert set(summary["unknown"]) <= nothing
    inside = {"steps", "where", "where_pid", "compiled", "reads", "trace"}
    assert set(summary["unknown"]) == inside
    training = summary["training"]
    assert {k for k, v in training.items() if v is None} == set(training["unknown"])
    assert summary["ticks"] == len(ticks)
    assert summary["end"] == "time limit"
    assert summary["gpus"][0]["utilisation_ratio"]["mean"] == pytest.approx(0.97)


def test_what_was_recorded_is_readable_afterwards(monitor: Monitor, job: Job, tape: Tape) -> None:
    env = tape("one_gpu", trainer=job.pid)
    answer = lines(
        monitor("attach", job.pid, "--for", "0.5", "--json", "--label", "mine", env=env).stdout
    )[-1]
    for ref in (str(answer["run"]), "last", "mine"):
        again = lines(monitor("runs", ref, "--json").stdout)[-1]
        assert again.pop("traces") == []
        assert again == answer
    assert "utilisation 97%" in monitor("runs", "mine").stdout


def test_plain_lines_when_nobody_watches(monitor: Monitor, job: Job, tape: Tape) -> None:
    env = tape("one_gpu", trainer=job.pid)
    done = monitor("attach", job.pid, "--for", "0.3", env=env)
    assert "gpu0 97%" in done.stdout
    assert "\x1b" not in done.stdout
    assert "monitor runs 1" in done.stdout


def test_a_terminal_gets_the_live_view_and_then_the_summary(
    state: Path, job: Job, tape: Tape
) -> None:
    ours, terminal = pty.openpty()
    env = {**os.environ, **tape("one_gpu", trainer=job.pid), "WHYIDLE_STATE_DIR": str(state)}
    env |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        command("attach", job.pid, "--for", "1.5"), env=env, stdout=terminal, stdin=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            shown += part
        assert process.wait() == 0
    os.close(ours)
    text = shown.decode()
    assert "\x1b[?1049h" in text
    assert "57.0 of 140 GiB" in text
    assert "█" in text
    assert text.index("\x1b[?1049l") < text.index("monitor runs 1")


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_key_ends_it_with_0_and_the_terminal_is_as_before(
    state: Path, job: Job, key: bytes
) -> None:
    ours, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    env = {**os.environ, "WHYIDLE_STATE_DIR": str(state), "TERM": "xterm-256color"}

    def own_the_terminal() -> None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command("attach", job.pid, "--hz", "10"),
        env=env, stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True, preexec_fn=own_the_terminal,  # noqa: PLW1509  no threads yet
    ) as process:  # fmt: skip
        shown = b""
        while b"stop watching" not in shown:
            shown += os.read(ours, 65536)
        # A page first: it is left by the same key.
        os.write(ours, b"?")
        while b"What the monitor takes" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, b"q" + key)
        while b"monitor runs 1" not in shown:
            shown += os.read(ours, 65536)
        assert process.wait() == 0
        assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    os.close(ours)
    assert b"stopped by the user" in shown
    assert job.poll() is None


def test_without_a_pid_a_person_chooses_from_a_list(state: Path, tape: Tape, job: Job) -> None:
    ours, terminal = pty.openpty()
    env = {**os.environ, **tape("one_gpu", trainer=job.pid), "WHYIDLE_STATE_DIR": str(state)}
    with subprocess.Popen(
        command("attach", "--for", "0.3", "--json"),
        env=env,
        stdin=terminal,
        stderr=terminal,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(terminal)
        shown = b""
        while b"Watch which one" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, b"1\n")
        assert process.stdout is not None
        answer = lines(process.stdout.read())
        assert process.wait() == 0
    os.close(ours)
    # The list has the job with the most device memory first.
    assert str(job.pid) in shown.decode()
    assert answer[-1]["pid"] == job.pid


def test_only_the_jobs_gpus_are_shown_unless_all_are_wanted(
    monitor: Monitor, job: Job, tape: Tape
) -> None:
    env = tape("eight_gpus", trainer=job.pid) | {"CUDA_VISIBLE_DEVICES": ""}
    own = monitor("attach", job.pid, "--for", "0.3", env=env).stdout
    everything = monitor("attach", job.pid, "--for", "0.3", "--all-gpus", env=env).stdout
    assert "gpu7" in everything
    assert own.count("gpu") <= everything.count("gpu")


def test_without_a_driver_the_host_part_goes_on(monitor: Monitor, job: Job, tape: Tape) -> None:
    done = monitor("attach", job.pid, "--for", "0.3", env=tape("mismatch"))
    assert done.returncode == 0
    assert done.stdout.count("different versions") == 2
    assert "job cpu" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_gpu_that_is_required_and_missing_ends_it(monitor: Monitor, job: Job, tape: Tape) -> None:
    done = monitor("attach", job.pid, "--require-gpu", env=tape("no_driver"))
    assert done.returncode == Exit.NO_GPU
    assert "not loaded" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("pid", "code", "said"),
    [
        ("abc.py", Exit.GONE, "No process of yours runs 'abc.py'"),
        ("0", Exit.USAGE, "no process id"),
        ("999999999", Exit.GONE, "There is no process 999999999"),
    ],
)
def test_a_wrong_pid_is_a_sentence_and_a_code(
    monitor: Monitor, pid: str, code: int, said: str
) -> None:
    done = monitor("attach", pid)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert "monitor ps" in done.stderr


def test_without_a_pid_and_without_a_terminal_it_says_so(monitor: Monitor) -> None:
    done = monitor("attach")
    assert done.returncode in {Exit.USAGE, Exit.GONE}
    assert "attach" in done.stderr


def test_the_recording_ends_with_the_job(state: Path, tape: Tape) -> None:
    with (
        start_job() as job,
        spawn(
            state, "attach", job.pid, "--json", "--hz", "10", env=tape("one_gpu", trainer=job.pid)
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        job.kill()
        rest = process.stdout.read()
        assert process.wait() == 0
    summary = lines(rest)[-1]
    assert summary["end"] == "job ended: killed by SIGKILL"
    assert summary["exit_code"] == -9


def test_ctrl_c_ends_the_watching_and_not_the_job(state: Path, job: Job) -> None:
    with spawn(state, "attach", job.pid) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait() == Exit.OK
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert "stopped by the user" in rest
    assert "monitor runs 1" in rest
    assert job.poll() is None


def test_a_reader_that_has_enough_is_no_error(monitor: Monitor, state: Path, job: Job) -> None:
    with spawn(state, "attach", job.pid, "--json", "--hz", "10") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert lines(monitor("runs", "--json").stdout)[0]["runs"][0]["state"] == "its output was closed"


def test_a_killed_recorder_loses_nothing_and_says_so(
    monitor: Monitor, state: Path, job: Job
) -> None:
    with spawn(state, "attach", job.pid, "--json", "--hz", "10") as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(5)]
        process.kill()
    assert lines(monitor("runs", "--json").stdout)[0]["runs"][0]["state"] == "recorder died"
    answer = lines(monitor("runs", "last", "--json").stdout)[0]
    assert answer["ticks"] >= len(seen)


def test_a_job_of_several_processes_is_one_job(monitor: Monitor) -> None:
    source = (
        "import os, time\nfor _ in range(2):\n    if os.fork() == 0:\n        time.sleep(600)\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    with start_job(source, start_new_session=True) as job:
        done = monitor("attach", job.pid, "--for", "0.3", "--json")
        os.killpg(job.pid, signal.SIGKILL)
    tick = lines(done.stdout)[0]
    assert tick["job"]["processes_count"] == 3


def test_a_secret_is_nowhere_in_the_store(monitor: Monitor, state: Path) -> None:
    with start_job(start_job.__globals__["JOB"], "--api-key", "sesame-open") as job:
        monitor("attach", job.pid, "--for", "0.3")
        job.kill()
    for file in (path for path in state.rglob("*") if path.is_file()):
        assert b"sesame-open" not in file.read_bytes(), file


def test_a_name_that_steers_a_terminal_is_harmless(monitor: Monitor) -> None:
    with start_job(start_job.__globals__["JOB"], "\x1b]0;owned\x07train.py") as job:
        done = monitor("attach", job.pid, "--for", "0.3")
        listed = monitor("runs")
        job.kill()
    assert "\x1b" not in done.stdout + listed.stdout


def test_an_event_of_the_driver_is_shown_and_kept(monitor: Monitor, job: Job, tape: Tape) -> None:
    done = monitor("attach", job.pid, "--for", "2.4", "--hz", "2", "--all-gpus", env=tape("lost"))
    assert "GPU 1 is lost" in done.stdout
    kinds = {e["kind"] for e in lines(monitor("runs", "last", "--json").stdout)[0]["events"]}
    assert {"gpu_lost", "xid"} <= kinds


def test_a_full_disk_is_said_and_neither_recording_nor_job_ends(
    small_disk: Path, job: Job, tape: Tape
) -> None:
    state, env = small_disk / "state", tape("eight_gpus", trainer=job.pid)
    with spawn(state, "attach", job.pid, "--json", "--hz", "10", env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["elapsed_s"] > 0.3:
                break
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb", 0) as filler:
            while filler.write(b"x" * 4096):
                pass
        for line in process.stdout:
            answer = json.loads(line)
            if answer["trouble"] is not None:
                break
        assert "is full" in answer["trouble"]
        later = [json.loads(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.stderr is not None
        assert process.wait() == 0, process.stderr.read()
        summary = lines(rest)[-1]
    assert later[-1]["elapsed_s"] > answer["elapsed_s"]
    assert summary["summary"] is True
    assert summary["end"] == "stopped"
    assert job.poll() is None
