"""``monitor try`` over a real job: what it gives, and the job as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Monitor, command, start_job
from whyidle.monitor.core.contracts.trying import TryJson
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.store import Reader
from whyidle.monitor.trying.knobs import KNOBS

# A loop that collects each time, as some do: with many objects that is what takes long.
TORCH = """
import gc, json, sys, threading, time, torch
torch.set_num_threads(1)
keep = [[n] for n in range(60_000)]
gc.collect()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def settings():
    return [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.getswitchinterval()]
over = threading.Event()
def hear():
    for line in sys.stdin:
        print(json.dumps(settings()), flush=True)
    over.set()
threading.Thread(target=hear, daemon=True).start()
print("ready", flush=True)
while not over.is_set():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    time.sleep(0.002)
"""
Job = subprocess.Popen[str]


@pytest.fixture
def job() -> Iterator[Job]:
    pytest.importorskip("torch")
    with start_job(TORCH) as process:
        yield process
        process.kill()


def settings(job: Job) -> list[object]:
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdin.write("?\n")
    job.stdin.flush()
    found: list[object] = json.loads(job.stdout.readline())
    return found


def test_it_says_what_it_gives_and_the_job_is_as_it_was(
    job: Job, monitor: Monitor, state: Path
) -> None:
    before = settings(job)
    done = monitor("try", job.pid, "gc.freeze", "--for", "60", "--json")
    assert done.returncode == Exit.OK, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == set(TryJson.__annotations__)
    assert found["verdict"] == "faster"
    assert found["state"] == "back"
    assert found["ratio"]["low"] > 1.2
    assert settings(job) == before
    with Reader.open(state / "whyidle.db") as reader:
        events = [e for e in reader.events(found["run"]) if e.kind == "try"]
        assert [e.data["state"] for e in events if e.data] == ["on", "back"]
        assert reader.run(found["run"]).end_reason == "the try is over"  # type: ignore[union-attr]


@pytest.mark.parametrize("after", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_whatever_ends_the_monitor_the_job_is_as_it_was(
    after: signal.Signals, job: Job, state: Path
) -> None:
    before = settings(job)
    line = command("try", job.pid, "gc.disable", "--for", "300")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while settings(job) == before:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(after)
        deadline = time.monotonic() + 15
        while settings(job) != before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.communicate(timeout=30)
    time.sleep(0.5)
    assert settings(job) == before


def test_what_may_change_results_needs_a_word(job: Job, monitor: Monitor) -> None:
    done = monitor("try", job.pid, "torch.threads=2")
    assert done.returncode == Exit.USAGE
    assert "--allow-numerics" in done.stderr


def test_a_job_without_steps_is_refused(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import sys, torch\nprint('ready', flush=True)\nsys.stdin.read()\n"
    pytest.importorskip("torch")
    with start_job(source) as process:
        done = monitor("try", process.pid, "gc.freeze")
        process.kill()
    assert done.returncode == Exit.USAGE
    assert "whyidle.step()" in done.stderr


def test_the_list_has_every_knob(monitor: Monitor) -> None:
    shown = monitor("try", "--list").stdout
    assert all(name in shown for name in KNOBS)
    listed = json.loads(monitor("try", "--list", "--json").stdout)["knobs"]
    assert [knob["knob"] for knob in listed] == list(KNOBS)


@pytest.mark.parametrize("arguments", [[], [str(os.getpid())], [str(os.getpid()), "no.such"]])
def test_what_is_missing_is_said(arguments: list[str], monitor: Monitor) -> None:
    done = monitor("try", *arguments)
    assert done.returncode == Exit.USAGE
    assert "monitor " in done.stderr
    assert sys.executable


def test_a_recording_is_no_process(monitor: Monitor) -> None:
    monitor("run", "--quiet", "--observe", "--", "sleep", "0.2")
    for more in (["--suggest"], ["gc.freeze"]):
        done = monitor("try", "last", *more)
        assert done.returncode == Exit.USAGE
        assert "last is a recording, of process" in done.stderr
        assert "monitor ps" in done.stderr
    assert "no process id" in monitor("try", "nothing", "--suggest").stderr
