"""The probe in this process, or in a job of its own, and what it reports."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.agents.pythons import AGENTS, PRELUDE, Client, ends_well
from tests.forked import Forked, Imported
from whyidle.agents.context import ProbeContext
from whyidle.agents.timers import SECOND, Timers
from whyidle.agents.torch.probe import TorchProbe

# An optimizer that is made imports the compiler.
TORCH = Imported("import torch, torch._dynamo")
# Ends when its input does: ``stop`` fills up then.
TRAINING = """
import threading, torch
from torch import nn
hooks = sys.modules["torch.optim.optimizer"]
torch.set_num_threads(1)
torch.manual_seed(0)
stop = []
def listen():
    os.read(0, 1); stop.append(1)
threading.Thread(target=listen, daemon=True).start()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    def forward(self, x):
        return self.layers(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
def train(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""


class Observed:
    """A probe in this process: its records and messages."""

    def __init__(self, main: int | None = None) -> None:
        self.records: list[list[Any]] = []
        self.said: list[str] = []
        self.timers = Timers()
        self.context = ProbeContext(self.timers, self.records.append, self.said.append, main)
        self.probe = TorchProbe(self.context)
        self.now = time.monotonic_ns()
        # The record of the steps of the last second.
        self.steps: list[Any] | None = None

    def begin(self) -> None:
        assert self.probe.begin() is None

    def second(self) -> dict[str, int | None]:
        self.now += SECOND
        found = self.probe.gauges(self.now)
        self.steps, figures = self.context.steps.second(self.now)
        found.update(figures)
        return found

    def state(self) -> dict[str, Any]:
        """Return the newest facts."""
        found: dict[str, Any] = [r for r in self.records if r[0] == "state"][-1][3]
        return found


@contextlib.contextmanager
def probe(main: int | None = None) -> Iterator[Observed]:
    """Start the probe in this process."""
    observed = Observed(main)
    try:
        observed.begin()
        yield observed
    finally:
        observed.context.hooks.undo()


class Watched:
    """A job with the agent inside, as its records show it."""

    def __init__(self, client: Client, pid: int) -> None:
        self.client = client
        self.pid = pid
        self.records: list[Any] = []
        # A client that does not read is dropped: these are read while we wait for this one.
        self.beside: tuple[Watched, ...] = ()

    def read(self) -> None:
        self.records += self.client.records()
        self.client.ask("lease", read=self.client.offset)

    def of(self, kind: str) -> list[Any]:
        return [record for record in self.records if record[0] == kind]

    def until(self, kind: str, is_it: Any) -> Any:
        """Read until such a record comes, and return it."""
        end = time.monotonic() + 60
        while True:
            for record in self.of(kind):
                if is_it(record):
                    return record
            assert time.monotonic() < end, json.dumps(self.records[-20:])
            time.sleep(0.05)
            for job in (self, *self.beside):
                job.read()

    def gauges(self, number: int) -> list[dict[str, Any]]:
        """Read so many more records of gauges."""
        before = len(self.of("gauges"))
        self.until("gauges", lambda _: len(self.of("gauges")) >= before + number)
        return [record[2] for record in self.of("gauges")[before:]]

    def says(self, name: str, value: Any) -> None:
        """Wait until the state says so."""
        self.until("state", lambda record: record[2] == "torch" and record[3].get(name) == value)


@contextlib.contextmanager
def training(source: str, folder: Path, *, anew: bool = False) -> Iterator[Watched]:
    """Run a job that says ``ready`` and trains until its input ends; it must end well."""
    with _anew(source, folder) if anew else _forked(source, folder) as process:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        with Client(folder, process.pid) as client:
            yield Watched(client, process.pid)
        ends_well(process)


def run(source: str, folder: Path) -> str:
    """Run a job to its end, which must be a good one without a word of complaint."""
    with _forked(source, folder) as process:
        said, errors = process.communicate()
    assert (process.returncode, errors) == (0, ""), errors
    return said


def _forked(source: str, folder: Path) -> Forked:
    return Forked(TORCH, PRELUDE + source, str(AGENTS), str(folder))


def _anew(source: str, folder: Path) -> subprocess.Popen[str]:
    # As torch was compiled when it was installed; nothing is written beside the sources.
    line = [sys.executable, "-B", "-W", "error", "-c", PRELUDE + source, str(AGENTS), str(folder)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(line, text=True, **pipes)  # type: ignore[call-overload,no-any-return]
