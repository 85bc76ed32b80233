from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Monitor, command, lines
from whyidle.monitor.core.errors import Exit


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("3", 3), ("256 + 7", 7)])
def test_it_exits_with_the_jobs_code(monitor: Monitor, code: str, expected: int) -> None:
    done = monitor("run", "--", sys.executable, "-c", f"import os; os._exit(({code}) & 255)")
    assert done.returncode == expected


def test_a_job_that_dies_of_a_signal_is_reported_as_a_shell_reports_it(monitor: Monitor) -> None:
    done = monitor("run", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137
    assert "job ended: killed by SIGKILL" in done.stderr


def test_the_jobs_output_is_its_own_and_the_summary_is_on_stderr(monitor: Monitor) -> None:
    source = "import sys; print('out'); print('err', file=sys.stderr)"
    done = monitor("run", "--", sys.executable, "-c", source)
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\n")
    assert "monitor runs 1" in done.stderr


def test_json_is_alone_on_stdout(monitor: Monitor) -> None:
    # Long enough for a recorder that has to wait for a core.
    source = "import time; print('out', flush=True); time.sleep(2)"
    done = monitor("run", "--json", "--hz", "10", "--", sys.executable, "-c", source)
    (summary,) = lines(done.stdout)
    assert summary["exit_code"] == 0
    assert summary["end"].startswith("job ended: ")
    assert summary["ticks"] >= 2
    assert "out" in done.stderr


def test_the_jobs_options_are_not_ours(monitor: Monitor) -> None:
    source = "import sys; print(sys.argv[1:])"
    done = monitor("run", "-q", "--", sys.executable, "-c", source, "--json", "--hz", "99", "-h")
    assert done.stdout == "['--json', '--hz', '99', '-h']\n"
    assert done.stderr == ""


def test_the_jobs_input_reaches_it(state: Path) -> None:
    done = subprocess.run(
        command("run", "-q", "--", "cat"), input="hello", capture_output=True, text=True, check=True
    )
    assert done.stdout == "hello"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [("no-such-command", 127, "no command"), (__file__, 126, "not executable")],
)
def test_what_cannot_be_started_is_a_sentence(
    monitor: Monitor, program: str, code: int, said: str
) -> None:
    done = monitor("run", "--", program)
    assert done.returncode == code
    assert said in done.stderr
    assert lines(monitor("runs", "--json").stdout)[0]["runs"] == []


def test_no_command_is_a_usage_error(monitor: Monitor) -> None:
    assert monitor("run").returncode == Exit.USAGE


def test_a_signal_for_us_is_a_signal_for_the_job(state: Path) -> None:
    source = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\nsignal.pause()"
    )
    with subprocess.Popen(
        command("run", "--", sys.executable, "-c", source),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 5


def test_when_the_monitor_dies_the_job_lives_on(state: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "say"
    os.mkfifo(fifo)
    done = str(tmp_path / "done")
    source = f"print('ready', flush=True); open({str(fifo)!r}).read(); open({done!r}, 'w')"
    with subprocess.Popen(
        command("run", "--", sys.executable, "-c", source), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait()
        fifo.write_text("go on")
        # The job holds our end of the pipe: it is closed when the job has ended by itself.
        process.stdout.read()
    assert (tmp_path / "done").exists()


def test_the_recording_ends_with_the_child_also_when_it_leaves_others_behind(
    monitor: Monitor,
) -> None:
    source = (
        "import subprocess; p = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL); print(p.pid)"
    )
    done = monitor("run", "--", sys.executable, "-c", source)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 0
