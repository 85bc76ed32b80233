"""runs RUN --label: of a recording that runs, and of one that is over."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Monitor, command, lines
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer

Job = subprocess.Popen[str]


@pytest.fixture
def two(state: Path) -> None:
    with Writer.open(state / DATABASE) as writer:
        for label in ("one", "two"):
            writer.end_run(writer.begin_run(NewRun(label=label)), "done")


def labels(monitor: Monitor) -> list[str | None]:
    (found,) = lines(monitor("runs", "--json").stdout)
    return [row["label"] for row in found["runs"]]


@pytest.mark.usefixtures("two")
def test_a_recording_that_is_over_gets_a_label_and_loses_it(monitor: Monitor) -> None:
    done = monitor("runs", "one", "--label", "before the fix")
    assert done.stdout == "Run 1 is called before the fix now.\n"
    assert labels(monitor) == ["before the fix", "two"]
    assert monitor("runs", "last", "--label", "").stdout == "Run 2 has no label now.\n"
    assert labels(monitor) == ["before the fix", None]


@pytest.mark.usefixtures("two")
def test_for_programs_it_is_the_row_of_the_list(monitor: Monitor) -> None:
    (found,) = lines(monitor("runs", "2", "--label", "new", "--json").stdout)
    (row,) = found["runs"]
    assert (row["run"], row["label"], row["state"]) == (2, "new", "done")


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("label", ["last", "12", "x" * 101, "a\nb", "\x1b[31m"])
def test_a_label_that_is_none_changes_nothing(monitor: Monitor, label: str) -> None:
    done = monitor("runs", "1", "--label", label)
    assert done.returncode == Exit.USAGE
    assert labels(monitor) == ["one", "two"]


@pytest.mark.usefixtures("two")
def test_of_which_recording_must_be_said(monitor: Monitor) -> None:
    done = monitor("runs", "--label", "x")
    assert done.returncode == Exit.USAGE
    assert "monitor runs last --label" in done.stderr
    assert "There is no recording 'three'" in monitor("runs", "three", "--label", "x").stderr


def test_of_a_recording_that_runs_its_recorder_does_it(
    monitor: Monitor, job: Job, state: Path
) -> None:
    recorder = subprocess.Popen(command("attach", job.pid, "-q"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (state / "control" / "1.sock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    done = monitor("runs", "last", "--label", "now")
    assert done.stdout == "Run 1 is called now now.\n"
    assert labels(monitor) == ["now"]
    recorder.send_signal(signal.SIGSTOP)
    done = monitor("runs", "last", "--label", "later")
    assert "is stopped" in done.stderr
    assert f"kill -CONT {recorder.pid}" in done.stderr
    recorder.send_signal(signal.SIGCONT)
    recorder.send_signal(signal.SIGTERM)
    recorder.wait()
    assert done.returncode == Exit.USAGE
