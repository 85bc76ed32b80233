"""`monitor attach` on training jobs that nobody prepared: the agent goes in and the loss stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Monitor, command, lines
from tests.link.conftest import key_of
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.link.channel import Address
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.store import Reader

pytestmark = pytest.mark.ptrace
Job = subprocess.Popen[str]

TORCH = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
w = torch.randn(64, 64, requires_grad=True)
def step(i):
    x = torch.randn(64, 64)
    loss = ((x @ w).tanh() - x).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w.sub_(0.1 * w.grad); w.grad = None
    return loss.item()
"""
JAX = """
import jax, jax.numpy as jnp
w = jax.random.normal(jax.random.key(0), (64, 64))
grad = jax.jit(jax.value_and_grad(lambda w, x: ((jnp.tanh(x @ w) - x) ** 2).mean()))
def step(i):
    global w
    loss, g = grad(w, jax.random.normal(jax.random.key(i), (64, 64)))
    w = w - 0.1 * g
    return float(loss)
"""
# It trains until its input ends, and at least so many steps, whose losses it prints.
LOOP = """
import sys, threading
STEPS = int(sys.argv[1])
step(0)
print("ready", flush=True)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
i = 0
while i < STEPS or not over.is_set():
    loss = step(i)
    if i < STEPS:
        print(loss.hex(), flush=True)
    i += 1
print("end", i, flush=True)
"""
FRAMEWORKS = {"torch": TORCH, "jax": JAX}
STEPS = 300


@contextmanager
def training(framework: str, folder: Path) -> Iterator[Job]:
    pytest.importorskip(framework)
    script = folder / "train.py"
    script.write_text(FRAMEWORKS[framework] + LOOP)
    with (
        (folder / "losses").open("w") as losses,
        subprocess.Popen(
            [sys.executable, str(script), str(STEPS)],
            stdin=subprocess.PIPE,
            stdout=losses,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        ) as job,
    ):
        try:
            yield job
        finally:
            job.kill()


def wait_for(folder: Path, job: Job, enough: Callable[[list[str]], object]) -> list[str]:
    while not enough(said := (folder / "losses").read_text().splitlines()):
        assert job.poll() is None
        time.sleep(0.01)
    return said


def losses(folder: Path, job: Job) -> list[str]:
    """Let a job come to its end; returns the losses that it printed."""
    assert job.stdin is not None
    job.stdin.write("enough\n")
    job.stdin.flush()
    assert job.wait() == 0
    first, *printed, last = (folder / "losses").read_text().splitlines()
    assert first == "ready"
    assert last.startswith("end")
    assert len(printed) == STEPS
    return printed


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_agent_goes_in_reports_and_changes_no_loss(
    framework: str, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "alone").mkdir()
    with training(framework, tmp_path / "alone") as job:
        alone = losses(tmp_path / "alone", job)
    (tmp_path / "watched").mkdir()
    with training(framework, tmp_path / "watched") as job:
        wait_for(tmp_path / "watched", job, lambda said: "ready" in said)
        with attached(state, job, "--hz", "5") as watch:
            tick = read_until(watch, has_reported)
            watch.terminate()
            summary = read_until(watch, lambda line: line.get("summary"))
        watched = losses(tmp_path / "watched", job)
    assert watched == alone
    (agent,) = tick["agents"]
    assert agent["python_threads_count"] >= 2
    assert agent["rss_peak_bytes"] > 1 << 20
    assert Path(agent["where"][0]["file"]).name == "train.py"
    assert tick["job"]["agents_count"] == 1
    assert (summary["attached"], summary["method"]) == ("agent", agent["method"])
    assert summary["end"] == "stopped"
    _is_stored(state, summary)


def has_reported(tick: dict[str, Any]) -> bool:
    return any(a["where"] and a["gc_pause_ratio"] is not None for a in tick["agents"])


def _is_stored(state: Path, summary: dict[str, Any]) -> None:
    with Reader.open(state / DATABASE) as reader:
        kinds = [e.kind for e in reader.events(summary["run"])]
        kept = {k.metric.name for k in reader.summary(summary["run"], {Scope.PROCESS})}
    assert {"agent_entered", "stacks", "agent_left"} <= set(kinds)
    assert {"gc_pause", "agent_cpu", "python_threads", "rss_peak", "agent_lost"} <= kept
    assert "stacks" not in {event["kind"] for event in summary["events"]}
    assert Path(summary["where"][0]["file"]).name == "train.py"


def attached(state: Path, job: Job, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("attach", job.pid, "--json", *options),
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state)},
        stdout=subprocess.PIPE,
        text=True,
    )


def read_until(watch: Job, enough: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    assert watch.stdout is not None
    for line in watch.stdout:
        tick: dict[str, Any] = json.loads(line)
        if enough(tick):
            return tick
    pytest.fail("the recording ended before")


def is_inside(tick: dict[str, Any]) -> bool:
    return any(agent["method"] == "ptrace" for agent in tick["agents"])


def test_a_killed_job_ends_the_run_with_its_cause_and_all_is_stored(
    state: Path, tmp_path: Path
) -> None:
    with training("torch", tmp_path) as job, attached(state, job, "--hz", "5") as watch:
        read_until(watch, lambda tick: is_inside(tick) and tick["agents"][0]["where"])
        job.send_signal(signal.SIGKILL)
        summary = read_until(watch, lambda line: line.get("summary"))
    assert summary["end"] == "job ended: killed by SIGKILL"
    assert summary["where"]
    left = [e["text"] for e in summary["events"] if e["kind"] == "agent_left"]
    assert left == [f"Process {job.pid}: the agent has gone without a word."]


def test_a_job_that_becomes_another_program_is_entered_again(state: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "b.py")
    again = (
        "import os, sys\nsys.stdin.readline()\n"
        f"os.execv(sys.executable, [sys.executable, {other!r}])\n"
    )
    (tmp_path / "b.py").write_text(f"{TORCH}\nwhile True: step(0)\n")
    (tmp_path / "a.py").write_text(
        f"{TORCH}\nimport threading\nprint('ready', flush=True)\n"
        f"threading.Thread(target=lambda: exec({again!r})).start()\nwhile True: step(0)\n"
    )
    pytest.importorskip("torch")
    with (
        subprocess.Popen(
            [sys.executable, tmp_path / "a.py"], stdin=subprocess.PIPE, text=True
        ) as job,
        attached(state, job, "--hz", "5") as watch,
    ):
        read_until(watch, is_inside)
        assert job.stdin is not None
        job.stdin.write("go\n")
        job.stdin.flush()
        tick = read_until(watch, lambda t: any(e["kind"] == "exec" for e in t["events"]))
        assert "b.py" in next(e["text"] for e in tick["events"] if e["kind"] == "exec")
        read_until(watch, lambda t: any(e["kind"] == "agent_entered" for e in t["events"]))
        job.kill()
        summary = read_until(watch, lambda line: line.get("summary"))
    assert [e["kind"] for e in summary["events"]].count("agent_entered") == 2


TRAINER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
    def forward(self, x):
        return self.inner(x).tanh()
torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(1000, 64))
def batches():
    while True:
        yield from DataLoader(data, batch_size=32, drop_last=True)
source = batches()
def step(i):
    (x,) = next(source)
    loss = (net(x) - x).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
"""


def test_a_training_job_shows_its_steps_its_model_and_what_it_waits_for(
    state: Path, tmp_path: Path, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FRAMEWORKS, "torch", TRAINER)
    with training("torch", tmp_path) as job:
        wait_for(tmp_path, job, lambda said: "ready" in said)
        with attached(state, job, "--hz", "5") as watch:
            tick = read_until(watch, has_trained)
            watch.terminate()
            summary = read_until(watch, lambda line: line.get("summary"))
    (agent,) = tick["agents"]
    assert agent["steps_source"] == "optimizer"
    assert agent["framework"]["torch"]["model"] == "Net"
    assert 0 < agent["step_p50_seconds"] <= agent["step_p95_seconds"]
    assert agent["samples_per_second"] > agent["steps_per_second"] > 0
    assert tick["job"]["step_p50_seconds"] == agent["step_p50_seconds"]
    assert 0 < tick["job"]["loader_wait_ratio"] < 1
    answer = summary["training"]
    assert summary["steps"] == answer["steps"] > 0
    assert (answer["framework"], answer["model"], answer["batch_size"]) == ("PyTorch", "Net", 32)
    assert answer["parameters"] == 64 * 64 + 64
    assert 0 < answer["loader_wait"] < 1
    assert answer["compile"] == 0
    assert "compile" not in answer["unknown"]
    (again,) = lines(monitor("runs", "last", "--json").stdout)
    assert again["training"] == answer


def has_trained(tick: dict[str, Any]) -> bool:
    (agent,) = tick["agents"] or [{}]
    waits = agent.get("loader_wait_ratio"), agent.get("samples_per_second")
    return None not in waits and "model" in (agent["framework"] or {}).get("torch", {})


def test_observing_only_leaves_the_job_as_it_is(monitor: Monitor, tmp_path: Path) -> None:
    with training("torch", tmp_path) as job:
        wait_for(tmp_path, job, lambda said: "ready" in said)
        address = Address.of(key_of(job.pid), ProcFs())
        assert address is not None
        done = monitor("attach", job.pid, "--for", "1.5", "--observe", "--json")
        assert not address.is_there()
    *ticks, summary = lines(done.stdout)
    assert (summary["attached"], summary["method"]) == ("outside", "procfs")
    assert all(agent["method"] == "outside" for tick in ticks for agent in tick["agents"])
