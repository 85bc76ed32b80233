"""The real agent, the real recorder: what `monitor run` comes to in a job."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attach.targets import AS_TORCH
from tests.conftest import Monitor, command
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.recording.agent_manager import ENTERED
from whyidle.monitor.store import Event, Reader

# Works until its input ends.
WORK = """
print("ready", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    sum(range(20000))
    time.sleep(0.001)
"""
JOB = f"import os, sys, threading, time, torch\n{WORK}"
# Its workers end with it: they read what it leaves unread.
FORKING = """
import multiprocessing, os, sys, threading, time, torch
def work(reading):
    while not reading.poll(0.01): sum(range(20000))
reading, writing = multiprocessing.Pipe(False)
multiprocessing.get_context("fork").Process(target=work, args=(reading,)).start()
print("ready", flush=True)
sys.stdin.read()
writing.send(0)
"""
RANKS = """
import os, sys, threading, time
import torch.distributed as group
group.init_process_group("gloo")
if group.get_rank() == 0:
    print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
group.barrier()
group.destroy_process_group()
"""
TORCH_LOSSES = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
def step():
    x = torch.randn(128, 32)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
JAX_LOSSES = """
import jax, jax.numpy as np
key = jax.random.key(0)
weights = jax.random.normal(key, (32, 64))
@jax.jit
def update(weights, key):
    x = jax.random.normal(key, (64, 32))
    loss, grads = jax.value_and_grad(lambda w: (np.tanh(x @ w).mean(1) ** 2).mean())(weights)
    return weights - grads, loss
def step():
    global weights, key
    key, now = jax.random.split(key)
    weights, loss = update(weights, now)
    return float(loss)
"""
# Trains a part alone, says so, and trains the rest when it is told to go on.
TRAIN = """
import sys
for part in range(2):
    print(*(step().hex() for _ in range(150)), flush=True)
    if part == 0: sys.stdin.readline()
"""


class Running:
    """A job under `monitor run`, and what the recorder has stored of it."""

    def __init__(self, state: Path, *arguments: object, **more: str) -> None:
        self._store = state / DATABASE
        self.process = subprocess.Popen(
            command("run", "--json", "--hz", "10", *arguments),
            env={**os.environ, "WHYIDLE_STATE_DIR": str(state), **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say_ready(self) -> None:
        """Wait until the job says so; its output is on stderr."""
        assert self.process.stderr is not None
        while (line := self.process.stderr.readline()) != "ready\n":
            assert line, "the job has ended"

    def entered(self, count: int = 1) -> list[Event]:
        """Wait until the agent is in so many processes."""
        while True:
            assert self.process.poll() is None, "the job has ended"
            with suppress(StorageProblem), Reader.open(self._store) as reader:
                found = [e for e in reader.events(1) if e.kind == ENTERED]
                if len(found) >= count:
                    return found
            time.sleep(0.02)

    def end(self) -> dict[str, Any]:
        """Let the job end; return the summary."""
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        summary: dict[str, Any] = json.loads(said)
        return summary

    def ranks(self) -> set[int | None]:
        """Return the ranks of the job's processes."""
        with Reader.open(self._store) as reader:
            return {process.rank for process in reader.processes(1)}


@pytest.fixture
def libraries(tmp_path: Path) -> str:
    """A torch that is imported at once, and seen from outside as one."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(AS_TORCH)
    return str(tmp_path)


@pytest.fixture
def started(state: Path) -> Iterator[list[Running]]:
    """What a test has started: ended with it."""
    running: list[Running] = []
    yield running
    for one in running:
        # It passes this on to the job: nothing of it stays.
        one.process.terminate()
        one.process.communicate()


def test_the_agent_came_with_the_job(state: Path, libraries: str, started: list[Running]) -> None:
    started.append(job := Running(state, "--", sys.executable, "-c", JOB, PYTHONPATH=libraries))
    job.say_ready()
    (entered,) = job.entered()
    assert "monitor run" in entered.text
    summary = job.end()
    assert (summary["attached"], summary["method"]) == ("agent", "run")
    assert summary["exit_code"] == 0


@pytest.mark.ptrace
@pytest.mark.parametrize("how", ["-I", "-E", "env -i"])
def test_a_python_that_knows_nothing_of_us_is_entered_from_outside(
    state: Path, libraries: str, started: list[Running], how: str
) -> None:
    source = f"import sys; sys.path.insert(0, {libraries!r})\n{JOB}"
    python = ["env", "-i", sys.executable] if how == "env -i" else [sys.executable, how]
    started.append(job := Running(state, "--", *python, "-c", source))
    job.say_ready()
    (entered,) = job.entered()
    assert "ptrace" in entered.text
    assert job.end()["method"] == "ptrace"


def test_observing_starts_the_job_as_it_is(monitor: Monitor, libraries: str) -> None:
    source = "import os, sys, torch; print(os.environ['PYTHONPATH'], *map(type, sys.meta_path))"
    done = monitor(
        "run", "--observe", "--json", "--", sys.executable, "-c", source,
        env={"PYTHONPATH": libraries},
    )  # fmt: skip
    assert done.stderr.split()[0] == libraries
    assert "_Hook" not in done.stderr
    assert json.loads(done.stdout)["attached"] == "outside"


def test_a_forked_worker_has_an_agent_of_its_own(
    state: Path, libraries: str, started: list[Running]
) -> None:
    started.append(job := Running(state, "--", sys.executable, "-c", FORKING, PYTHONPATH=libraries))
    job.say_ready()
    assert len({event.text for event in job.entered(2)}) == 2
    job.end()


def test_without_a_framework_there_is_no_agent(monitor: Monitor) -> None:
    source = "import os, sys; print([m for m in sys.modules if 'whyidle_agent' in m])"
    done = monitor("run", "--json", "--hz", "10", "--", sys.executable, "-c", source)
    assert done.stderr == "[]\n"
    assert not [e for e in json.loads(done.stdout)["events"] if e["kind"] == ENTERED]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_and_its_ranks(state: Path, tmp_path: Path, started: list[Running]) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    go_on = tmp_path / "go on"
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    started.append(job := Running(state, "--", *torchrun, tmp_path / "train.py", go_on))
    job.say_ready()
    # The launcher imports torch as well.
    assert len({event.text for event in job.entered(3)}) == 3
    go_on.touch()
    assert job.end()["script"].startswith("-m torch.distributed.run")
    assert job.ranks() == {None, 0, 1}


@pytest.mark.parametrize(("framework", "source"), [("torch", TORCH_LOSSES), ("jax", JAX_LOSSES)])
def test_a_job_computes_the_same_to_the_last_bit(
    state: Path, tmp_path: Path, started: list[Running], framework: str, source: str
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    (tmp_path / "train.py").write_text(source + TRAIN)
    python = (sys.executable, str(tmp_path / "train.py"))
    plain = subprocess.run(python, input="\n", capture_output=True, text=True, check=True)
    started.append(job := Running(state, "--", *python))
    assert job.process.stdin is not None
    # The first part may run with an agent still coming in, the second runs with it inside.
    assert job.process.stderr is not None
    losses = job.process.stderr.readline()
    job.entered()
    losses += (job.process.communicate("\n"))[1]
    assert losses == plain.stdout
    assert len(set(losses.split())) == 300


def test_what_the_shell_opens_for_the_job_reaches_it(state: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"hello")
    os.close(writing)
    done = subprocess.run(
        command("run", "-q", "--", "cat", f"/dev/fd/{reading}"),
        pass_fds=[reading], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    os.close(reading)
    assert done.stdout == "hello"
