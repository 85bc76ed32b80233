"""trace PID: a trace of a real job, taken now, and the job as it was afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach.targets import AS_TORCH
from tests.commands.test_trace import check_contract
from tests.commands.tracefiles import kineto
from tests.conftest import Monitor, command, lines, start_job
from whyidle.agents import wire
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.store.timeline_rows import keep
from whyidle.monitor.store.traces import forget
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

Job = subprocess.Popen[str]

TORCH = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(16, 32)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
JAX = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
double = jax.jit(lambda x: jnp.tanh(x @ x))
def step():
    return float(double(jnp.ones((64, 64))).sum())
step()
"""
LOOP = """
import sys, threading, time
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
print("ready", flush=True)
while not over.is_set():
    step()
    time.sleep(0.002)
import glob, os
sys.stdout.write("threads %d\\n" % len(os.listdir("/proc/self/task")))
"""
SOURCES = {"torch": TORCH, "jax": JAX}


@pytest.fixture
def job(framework: str) -> Iterator[Job]:
    pytest.importorskip(framework)
    with start_job(SOURCES[framework] + LOOP) as process:
        yield process
        process.kill()


def finish(job: Job) -> str:
    said, _ = job.communicate("enough\n", timeout=60)
    assert job.returncode == 0
    return said


def left_of(pid: int) -> list[str]:
    """Return what an agent left."""
    folder = Path(wire.FOLDERS[0], wire.folder_name(os.geteuid()))
    return [path.name for path in folder.glob(f"{pid}.*")]


def kept_files(state: Path) -> list[Path]:
    return sorted((state / "traces").glob("*"))


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", SOURCES)
def test_a_trace_is_taken_shown_and_kept_and_the_job_goes_on(
    monitor: Monitor, state: Path, job: Job, framework: str
) -> None:
    done = monitor("trace", job.pid, "--seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = lines(done.stdout)
    check_contract(answer)
    assert answer["format"] == {"torch": "kineto", "jax": "xplane"}[framework]
    assert answer["events"] > 0
    (file,) = kept_files(state)
    assert file.stat().st_mode & 0o777 == 0o600
    assert answer["file"] == str(file)
    assert f"monitor trace view {file}" in done.stderr
    assert ("The job paused for" in done.stderr) == (framework == "torch")
    # The same page as of the file.
    (again,) = lines(monitor("trace", file, "--json").stdout)
    assert again == answer
    with Kept.open(state / "whyidle.db") as kept:
        (trace,) = kept.traces()
        assert trace.run is None
        assert trace.taken is not None
        assert trace.taken["pid"] == job.pid
        assert trace.taken["began_ms"] == trace.ts_ms
        assert abs(trace.ts_ms / 1000 - time.time()) < 60
    assert left_of(job.pid) == []
    assert "threads" in finish(job)


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", ["torch"])
def test_a_trace_of_a_recorded_job_is_kept_with_its_run_and_its_agent_stays(
    monitor: Monitor, state: Path, job: Job, framework: str
) -> None:
    watch = subprocess.Popen(
        command("attach", job.pid, "--json", "--no-trace"), stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    with watch:
        for line in watch.stdout:
            if any(a["method"] for a in json.loads(line)["agents"]):
                break
        done = monitor("trace", job.pid, "--seconds", "0.2")
        assert done.returncode == 0, done.stderr
        # It goes on reporting.
        agents = json.loads(watch.stdout.readline())["agents"]
        watch.terminate()
        summary = json.loads(watch.stdout.read().splitlines()[-1])
    assert agents[0]["method"] in {"ptrace", "remote_exec"}
    run = summary["run"]
    assert f"monitor trace view {run}" in done.stderr
    (file,) = kept_files(state)
    assert file.name.startswith(f"run-{run}-")
    with Kept.open(state / "whyidle.db") as kept:
        (trace,) = kept.traces(run)
        assert trace.path == file
        assert summary["started_ms"] <= trace.ts_ms <= summary["ended_ms"]
    assert left_of(job.pid) == []
    out = state / "out.json"
    assert monitor("trace", "view", run, "--perfetto", out).returncode == 0
    assert monitor("prune", run, "--yes").returncode == 0
    assert kept_files(state) == []


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", ["torch"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_however_it_ends_it_leaves_nothing_behind(
    state: Path, job: Job, framework: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        command("trace", job.pid, "--seconds", "10"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        folder = Path(wire.FOLDERS[0], wire.folder_name(os.geteuid()))
        spool = folder / wire.spool_name(job.pid)
        deadline = time.monotonic() + 30
        while not (spool.exists() and '"begun"' in spool.read_text()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == (Exit.INTERRUPTED if number == signal.SIGINT else 0)
    assert out == ""
    assert "defect" not in err
    assert left_of(job.pid) == []
    assert kept_files(state) == []
    assert "threads" in finish(job)


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", ["torch"])
def test_a_job_that_profiles_itself_is_left_alone(
    monitor: Monitor, state: Path, framework: str
) -> None:
    pytest.importorskip("torch")
    profiled = LOOP.replace("while not", "import torch.autograd.profiler as p\np.profile(use_kineto"
                            "=True).__enter__()\nwhile not")  # fmt: skip
    with start_job(TORCH + profiled) as job:
        done = monitor("trace", job.pid)
        assert done.returncode == Exit.USAGE
        assert "the job profiles itself" in done.stderr
        assert kept_files(state) == []
        job.kill()


# Refusals ----------------------------------------------------------------------------------------
def test_a_process_that_is_not_there_is_a_sentence(monitor: Monitor) -> None:
    done = monitor("trace", "4194000")
    assert done.returncode == Exit.GONE
    assert done.stderr == (
        "monitor: There is no process 4194000.\n  See what runs with: monitor ps\n"
    )


def test_a_process_without_a_framework_is_a_sentence(monitor: Monitor) -> None:
    with start_job() as job:
        done = monitor("trace", job.pid)
        job.kill()
    assert done.returncode == Exit.USAGE
    assert "neither JAX nor PyTorch" in done.stderr
    assert "monitor ps" in done.stderr


def test_a_process_that_is_stopped_is_a_sentence(monitor: Monitor) -> None:
    source = AS_TORCH + "print('ready', flush=True)\nimport sys; sys.stdin.read()"
    with start_job(source) as job:
        job.send_signal(signal.SIGSTOP)
        done = monitor("trace", job.pid)
        job.kill()
    assert done.returncode == Exit.PERMISSION
    assert "stopped" in done.stderr
    assert re.search(r"\n  \S", done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else needs root")
def test_a_process_of_somebody_else_is_a_sentence(monitor: Monitor) -> None:
    code = "import os, sys; os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])"
    as_somebody_else = [sys.executable, "-c", code]
    nothing = [*as_somebody_else, sys.executable, "-c", ""]
    if subprocess.run(nothing, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("Python lies where only root may look")
    with start_job() as job:
        done = subprocess.run(
            [*as_somebody_else, *command("trace", job.pid)],
            env={**os.environ, "WHYIDLE_STATE_DIR": "/nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )
        job.kill()
    assert done.returncode == Exit.PERMISSION, done.stderr
    assert "not to you" in done.stderr


@pytest.mark.parametrize("pid", ["1", "2"])
def test_what_keeps_the_machine_running_is_no_job(monitor: Monitor, pid: str) -> None:
    done = monitor("trace", pid)
    if os.geteuid() == 0:
        assert done.returncode == Exit.USAGE
        assert re.search("not a training job|thread of the kernel", done.stderr)
    else:
        assert done.returncode in {Exit.PERMISSION, Exit.GONE, Exit.USAGE}
    assert "monitor ps" in done.stderr or "root" in done.stderr


def test_a_full_disk_is_said_before_anything_is_done(monitor: Monitor, job_of_any: Job) -> None:
    code = (
        "from whyidle.monitor.tracing import space\n"
        "space.SPARE_BYTES = 1 << 60\n"
        "import sys\n"
        "from whyidle.monitor.cli import main\n"
        "sys.argv = ['monitor', 'trace', sys.argv[1]]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(job_of_any.pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.USAGE
    assert "too little room" in done.stderr
    assert "monitor prune" in done.stderr


@pytest.fixture
def job_of_any(state: Path) -> Iterator[Job]:
    with start_job() as process:
        yield process
        process.kill()


@pytest.mark.parametrize("option", [("--seconds", "1"), ("--server", "9999")])
def test_a_files_length_is_not_chosen(
    monitor: Monitor, tmp_path: Path, option: tuple[str, str]
) -> None:
    (tmp_path / "trace.json").write_text("[]")
    done = monitor("trace", tmp_path / "trace.json", *option)
    assert done.returncode == Exit.USAGE
    assert "monitor trace PID" in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "11", "nan", "x"])
def test_a_length_that_makes_no_sense_is_refused(monitor: Monitor, seconds: str) -> None:
    assert monitor("trace", "1", "--seconds", seconds).returncode == Exit.USAGE


def test_how_a_trace_of_ours_was_recorded_is_nobodys_choice(
    monitor: Monitor, state: Path, tmp_path: Path
) -> None:
    whole = kineto()
    only_gpu = [event for event in whole["traceEvents"] if event["cat"] == "kernel"]
    ours = state / "traces" / "pid-7-1700000000000.json"
    ours.parent.mkdir(parents=True)
    for path in (ours, tmp_path / ours.name):
        path.write_text(json.dumps({**whole, "traceEvents": only_gpu}))
        (answer,) = lines(monitor("trace", path, "--json").stdout)
        said = [*answer["warnings"], *answer["unknown"].values()]
        assert any("of the host" in text for text in said)
        assert any("with_stack=True" in text for text in said) == (path != ours)


def test_traces_of_no_recording_whose_files_have_gone_go_too(state: Path, tmp_path: Path) -> None:
    store = state / "whyidle.db"
    with Writer.open(store) as writer:
        run = writer.begin_run(NewRun())
        writer.end_run(run, "done")
    paths = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for path, owner in zip(paths, (None, None, run), strict=True):
        path.write_text(json.dumps(kineto()))
        analysis = analyse(path)
        keep(store, analysis.trace, contract(analysis), file=path, run=owner)
    forget(store, [paths[0], paths[2]])
    with Kept.open(store) as kept:
        assert [trace.path for trace in kept.traces()] == paths[1:]
