"""``monitor demo`` as a person runs it: to the end, cut short, and where something is missing."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Monitor, command, lines
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.demo import watched

# So long no program of a test ever trains: what is cut is cut in the middle.
FOR_EVER = 600
QUICK = [("unjitted_step", "jax"), ("python_loop_over_batch", "torch")]


def needs(framework: str) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


@pytest.fixture
def lacking(tmp_path: Path) -> Any:
    """Return an environment in which frameworks cannot be found."""

    def without(*frameworks: str) -> dict[str, str]:
        folder = tmp_path / "lacking"
        folder.mkdir()
        lines = [f"sys.modules[{name!r}] = None" for name in frameworks]
        (folder / "sitecustomize.py").write_text("\n".join(["import sys", *lines]))
        return {"PYTHONPATH": str(folder)}

    return without


@pytest.mark.parametrize(("fault", "framework"), QUICK)
def test_a_quick_pair_runs_for_real(monitor: Monitor, fault: str, framework: str) -> None:
    needs(framework)
    done = monitor("demo", fault, "--framework", framework, "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = lines(done.stdout)
    assert (answer["fault"], answer["framework"]) == (fault, framework)
    assert answer["measured"][1] > 1
    assert (answer["before"]["run"], answer["after"]["run"]) == (1, 2)
    for name in ("predicted", "measured"):
        known = answer[name] is not None and None not in answer[name]
        assert known or answer["unknown"][name]
    assert "\x1b" not in done.stderr
    runs = json.loads(monitor("runs", "--json").stdout)["runs"]
    assert [run["label"] for run in runs] == [f"{fault} before", f"{fault} after"]
    assert all(run["state"].startswith("job ended") for run in runs)


def test_on_one_core_and_a_narrow_terminal_it_is_still_a_page(monitor: Monitor) -> None:
    needs("torch")
    core = min(os.sched_getaffinity(0))
    done = monitor(
        "demo", "input_starved", "--framework", "torch", "--seconds", "0.5",
        env={"COLUMNS": "40"}, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "input_starved" in done.stdout
    assert "measured" in done.stdout
    page = done.stdout.partition("Runs 1 to 2")[0]
    assert max(len(line) for line in page.splitlines()) <= 40


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def when_training(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until the job itself runs, and return all that was started."""
    while process.poll() is None:
        found = family(process.pid)
        if any(map(is_the_job, found)):
            return found
    pytest.fail(process.communicate()[1])


def is_the_job(process: psutil.Process) -> bool:
    try:
        line = process.cmdline()
    except psutil.Error:
        # One that was only there for a moment; to fail here would be to wait for the demo's end.
        return False
    return "--seconds" in line and "before_" in line[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_cut_in_the_middle_it_leaves_nothing_behind(
    monitor: Monitor, state: Path, number: signal.Signals, tmp_path: Path
) -> None:
    needs("jax")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        command("demo", "unjitted_step", "--seconds", FOR_EVER, "--json"),
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        started = when_training(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert out == ""
    assert "The demo was stopped" in err
    assert "Traceback" not in err
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert json.loads(monitor("runs", "--json").stdout)["runs"] == []
    assert not list(temporary.iterdir())


def test_ctrl_c_on_a_terminal_takes_the_line_of_progress_back(state: Path) -> None:
    needs("jax")
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        command("demo", "unjitted_step", "--seconds", FOR_EVER),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        text=True,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        started = when_training(process)
        process.send_signal(signal.SIGINT)
        said = b""
        while True:
            try:
                some = os.read(ours, 65536)
            except OSError:
                break
            if not some:
                break
            said += some
    os.close(ours)
    assert process.returncode == Exit.INTERRUPTED
    assert "unjitted_step (jax) before the fix" in said.decode()
    assert b"\r\x1b[K" in said
    assert said.decode().splitlines()[-1].strip().endswith("its processes have ended.")
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_cut_after_the_first_side_it_keeps_that_one_and_says_so(
    monitor: Monitor, state: Path
) -> None:
    needs("torch")
    with subprocess.Popen(
        command("demo", "input_starved", "--framework", "torch", "--seconds", "0.5"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while "after the fix" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode == Exit.INTERRUPTED
    assert "Kept: run 1, whole." in err
    (run,) = json.loads(monitor("runs", "--json").stdout)["runs"]
    assert run["label"] == "input_starved before"


def test_a_signal_while_a_child_is_started_is_put_off_not_lost() -> None:
    before = signal.getsignal(signal.SIGINT)
    with watched._put_off() as came:
        os.kill(os.getpid(), signal.SIGINT)
    assert came == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        watched._heed(came)


def test_make_demo_runs_it_and_asks_for_no_terminal() -> None:
    root = Path(__file__).parent.parent.parent
    output = subprocess.run(
        ["make", "-n", "demo"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert ".venv/bin/monitor demo\n" in output
    assert "read " not in output


def test_without_the_framework_it_says_what_to_install(monitor: Monitor, lacking: Any) -> None:
    done = monitor("demo", "input_starved", "--framework", "torch", env=lacking("torch"))
    assert done.returncode == Exit.USAGE
    assert "PyTorch is not installed here" in done.stderr
    assert to_install("demo") in done.stderr
    assert done.stdout == ""


def test_without_any_framework_it_says_so_once(monitor: Monitor, lacking: Any) -> None:
    done = monitor("demo", env=lacking("jax", "torch"))
    assert done.returncode == Exit.USAGE
    assert done.stderr.count(to_install("demo")) == 1


def test_the_list_says_what_is_not_installed(monitor: Monitor, lacking: Any) -> None:
    done = monitor("demo", "--list", env=lacking("torch"))
    assert done.returncode == 0
    assert "PyTorch: not installed here" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("gc_pauses"))
    assert "JAX" in row
    assert "(PyTorch)" in row


def test_the_list_as_json_names_both_programs(monitor: Monitor) -> None:
    (answer,) = lines(monitor("demo", "--list", "--json").stdout)
    assert all(
        Path(each[side]).is_file() for each in answer["demos"] for side in ("before", "after")
    )


def test_a_store_that_cannot_be_written_is_reported_before_anything_runs(
    monitor: Monitor, tmp_path: Path
) -> None:
    needs("jax")
    (tmp_path / "file").write_text("no folder")
    where = {"WHYIDLE_STATE_DIR": str(tmp_path / "file" / "state")}
    done = monitor("demo", "unjitted_step", env=where)
    assert done.returncode == Exit.STORAGE
    assert "before the fix" not in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_an_unknown_fault_is_answered_with_near_names(monitor: Monitor) -> None:
    done = monitor("demo", "unjited_step")
    assert done.returncode == Exit.USAGE
    assert "Did you mean: monitor demo unjitted_step" in done.stderr


def test_a_fault_and_all_exclude_each_other(monitor: Monitor) -> None:
    assert monitor("demo", "retracing", "--all").returncode == Exit.USAGE


def test_a_program_that_fails_is_reported_with_what_it_said(state: Path, tmp_path: Path) -> None:
    script = tmp_path / "before_jax.py"
    script.write_text("import sys\nsys.exit('no such disk')\n")
    source = (
        "import sys\nfrom pathlib import Path\n"
        "from whyidle.monitor.demo.watched import watch\n"
        "from whyidle.monitor.core.errors import Problem\n"
        "try:\n    watch(Path(sys.argv[1]), 1, 'x')\n"
        "except Problem as problem:\n    print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, str(script)], capture_output=True, text=True, check=True
    )
    assert "before_jax.py ended with code 1:" in done.stdout
    assert "no such disk" in done.stdout
    assert f"{script} --seconds 5" in done.stdout
