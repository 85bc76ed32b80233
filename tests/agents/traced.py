"""A client that asks for traces, and what jobs that profile themselves have in common."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tests.agents.jax import jobs
from tests.agents.pythons import AGENTS, PRELUDE, Client
from tests.agents.torch import inside
from tests.forked import Forked

IMPORTED = {"torch": inside.TORCH, "jax": jobs.JAX}

# A model that learns; ``loss`` is printed at the end and must never change.
TORCH = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(64, 8)
def step():
    optimizer.zero_grad(); loss = model(data).pow(2).mean(); loss.backward(); optimizer.step()
    return loss.item()
for _ in range(3): step()
def start(**options):
    core = load()
    # Where the machine is busy with other tests, each window would cost more than it may.
    importlib.import_module("_whyidle_agent.torch.tracing").HELD_NS = 10**11
    core.start({"method": "ptrace", "grace": 60, **options})
    return core
"""

JAX = """
import jax, jax.numpy as jnp
@jax.jit
def update(w, x):
    return w - 0.01 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
weights, data = jnp.ones((8, 8)), jnp.ones((16, 8))
def step():
    global weights
    weights = update(weights, data)
    return float(weights.sum())
for _ in range(3): step()
"""

# The job goes on until it is told to stop, and says how its own part went.
UNTIL_TOLD = """
import threading
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
"""


# What PyTorch's own profiler logs of itself, as C++ does: Kineto's marks of a profile on another
# thread, and warnings of its files where a machine is late. Errors of it, and all else, count.
OF_KINETO = re.compile(
    r"USDT:.* (profiler_start|profiler_stop)|ERROR: External init callback .*"
    r"|(INFO|WARNING):\d{4}-\d\d-\d\d [\d: ]+\w+\.cpp:\d+\].*"
    r"|\[[IW]\d{4} [\d:.]+ (profiler_\w+|collection|kineto_\w+|observer|util)\.cpp:\d+\].*"
)


class Job:
    """A job whose errors go to a file: a full pipe must not block it."""

    def __init__(self, process: Forked | subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._errors = errors

    def hear(self, word: str) -> None:
        """Wait for a line."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n", self.complaints()

    def tell(self, line: str = "") -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def complaints(self) -> str:
        return self._errors.read_text(errors="replace")

    def how_it_is(self) -> str:
        """Return how it ended, or that it runs, and what it complained of."""
        ended = "runs"
        with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
            ended = f"ended with {self.process.wait(1)}"
        return f"the job {ended}; it said: {self.complaints()!r}"

    def ends_well(self) -> str:
        """End its input, and see that it ends with only its own words; returns what it says."""
        out, _ = self.process.communicate("end\n", timeout=60)
        errors = self.complaints()
        foreign = [line for line in errors.splitlines() if not OF_KINETO.fullmatch(line)]
        assert (self.process.returncode, foreign) == (0, []), errors
        return out


@contextlib.contextmanager
def job(source: str, folder: Path) -> Iterator[Job]:
    """Start a job of this Python, wait for its ``ready``, and end it afterwards."""
    path = folder / "complaints"
    with path.open("w") as errors, _started(source, folder, errors) as process:
        try:
            found = Job(process, path)
            found.hear("ready")
            yield found
        except (EOFError, OSError) as error:
            # The agent is gone or says nothing: what became of the job?
            raise AssertionError(found.how_it_is()) from error
        finally:
            process.kill()


def _started(source: str, folder: Path, errors: IO[str]) -> Forked | subprocess.Popen[str]:
    """A job of a framework begins where its import has ended."""
    for name, imported in IMPORTED.items():
        if source.startswith(f"\nimport {name}"):
            return Forked(imported, PRELUDE + source, str(AGENTS), str(folder), stderr=errors)
    line = [sys.executable, "-B", "-W", "error", "-c", PRELUDE + source, str(AGENTS), str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=errors, text=True)


class Tracing:
    """Asks for traces, and keeps all records of them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[Any] = []

    def ask(self, **more: object) -> dict[str, Any]:
        """Ask until it is not too soon any more."""
        while True:
            answer = self.client.ask("trace", **{"seconds": 0.2, **more})
            if answer["ok"] or "too soon" not in answer["why"]:
                return answer
            time.sleep(0.05)

    def end_of(self, number: int) -> Any:
        """Wait for the last record of a trace."""
        while True:
            self.said += [r for r in self.client.records() if r[0] == "trace"]
            for record in self.said:
                if record[2] == number and record[3] != "begun":
                    return record
            self.client.ask("lease", read=self.client.offset)
            time.sleep(0.01)

    def until_begun(self) -> None:
        """Wait until a trace has begun."""
        while not any(record[3] == "begun" for record in self.said):
            self.said += [r for r in self.client.records() if r[0] == "trace"]
            time.sleep(0.001)

    def take(self, **more: object) -> Any:
        """Take a trace; returns its last record."""
        answer = self.ask(**more)
        assert answer["ok"], answer
        return self.end_of(answer["id"])
