from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Monitor, lines
from tests.link.conftest import key_of
from whyidle.monitor.core.errors import Exit

Job = subprocess.Popen[str]


def test_a_recording_in_the_background_goes_on_until_it_is_stopped(
    monitor: Monitor, job: Job, tape: Callable[..., dict[str, str]]
) -> None:
    env = tape("one_gpu", trainer=job.pid)
    begun = lines(
        monitor("attach", job.pid, "--background", "--json", "--hz", "10", env=env).stdout
    )[0]
    command = Path(f"/proc/{begun['recorder_pid']}/cmdline").read_text().split("\0")
    assert command[command.index("--start-ticks") + 1] == str(key_of(job.pid).start_ticks)
    listed = lines(monitor("runs", "--json").stdout)[0]["runs"]
    assert [r["state"] for r in listed] == ["recording"]
    stopped = lines(monitor("stop", "--json").stdout)[0]
    assert stopped["run"] == begun["run"]
    assert stopped["end"] == "stopped"
    assert stopped["ticks"] >= 1
    assert stopped["gpus"][0]["job"] is True
    assert job.poll() is None


def test_a_recorder_takes_no_other_process_for_the_one_that_was_checked(
    monitor: Monitor, job: Job
) -> None:
    ticks = key_of(job.pid).start_ticks
    other = monitor("attach", job.pid, "--quiet", "--for", "0.2", "--start-ticks", ticks - 1)
    assert other.returncode == Exit.GONE
    assert f"Process {job.pid} has ended meanwhile." in other.stderr
    same = monitor("attach", job.pid, "--quiet", "--for", "0.2", "--start-ticks", ticks)
    assert same.returncode == 0, same.stderr


def test_what_the_recorder_cannot_do_is_told_to_the_command_that_started_it(
    monitor: Monitor, job: Job, tape: Callable[..., dict[str, str]]
) -> None:
    env = tape("no_driver")
    done = monitor("attach", job.pid, "--background", "--require-gpu", env=env)
    assert done.returncode == Exit.NO_GPU
    assert "not loaded" in done.stderr


def test_several_recordings_must_be_named(monitor: Monitor, job: Job) -> None:
    for _ in range(2):
        assert monitor("attach", job.pid, "--background").returncode == 0
    refused = monitor("stop")
    assert refused.returncode == Exit.USAGE
    assert "2 recordings run" in refused.stderr
    assert monitor("stop", "1").returncode == 0
    again = monitor("stop", "1")
    assert again.returncode == Exit.GONE
    assert "has ended" in again.stderr
    assert monitor("stop", "--all").returncode == 0


def test_nothing_to_stop(monitor: Monitor, job: Job) -> None:
    monitor("attach", job.pid, "--for", "0.2")
    done = monitor("stop")
    assert done.returncode == Exit.GONE
    assert "No recording runs" in done.stderr
