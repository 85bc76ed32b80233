"""Jobs to enter: each says "ready", works and checks its own results, and prints them at the end.

The first round is made before anybody may come; every later one must come out the same to the bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyidle.monitor.attach.ptrace.inject import Injected, inject
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

LOOP = """
import json, select, sys, time
def ended():
    return bool(select.select([sys.stdin], [], [], 0)[0])
def loop(work, tell=lambda: None):
    first = work()
    print("ready", flush=True)
    rounds = wrong = 0
    longest, last = 0.0, time.perf_counter()
    while not ended():
        wrong += work() != first
        rounds += 1
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    facts = {"rounds": rounds, "wrong": wrong, "gap_ms": longest * 1e3, "first": repr(first)}
    print(json.dumps({**facts, "more": tell()}), flush=True)
"""
BUSY = (
    LOOP
    + """
def work():
    table = {j: [j] * (j % 40) for j in range(50)}
    return hash(''.join(map(str, table.items())))
loop(work)
"""
)
SLEEPING = (
    LOOP
    + """
def work():
    began = time.monotonic()
    time.sleep(0.01)
    return time.monotonic() - began >= 0.01
loop(work)
"""
)
THREADS = (
    LOOP
    + """
import threading
wrong = []
def contend():
    while True:
        if sum([j for j in range(100)]) != 4950:
            wrong.append(1)
for _ in range(8):
    threading.Thread(target=contend, daemon=True).start()
def work():
    time.sleep(0.005)
    return len(wrong)
loop(work)
"""
)
NUMPY = (
    LOOP
    + """
import numpy as np
a = np.arange(100_000, dtype=np.float64) % 1000
b = np.arange(100_000, dtype=np.float64) % 777
f = a.astype(np.float32)
def work():
    return float(np.dot(a, b)), float((a * b + a).sum()), float(np.sqrt(f).sum())
loop(work)
"""
)
TORCH = (
    LOOP
    + """
import torch
def work():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    best = torch.optim.SGD(model.parameters(), lr=0.01)
    # Filled up with zeros, to different lengths: as the agent looks for.
    rows = torch.randn(320, 32) * (torch.arange(32) < torch.randint(4, 20, (320, 1)))
    losses = []
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=64):
        best.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        best.step()
        losses.append(loss.item().hex())
    return losses
loop(work)
"""
)
JAX = (
    LOOP
    + """
import jax, jax.numpy as jnp
def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)
step = jax.jit(jax.value_and_grad(loss))
def work():
    key = jax.random.PRNGKey(0)
    w, x, losses = jax.random.normal(key, (32, 16)), jax.random.normal(key, (64, 32)), []
    for _ in range(5):
        value, slope = step(w, x)
        w = w - 0.01 * slope
        losses.append(float(value).hex())
    return losses
loop(work)
"""
)
TENSORFLOW = (
    LOOP
    + """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
w = tf.Variable(tf.zeros((32, 16)))
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(tf.tanh(tf.matmul(x, w)) ** 2)
    w.assign_sub(0.01 * tape.gradient(value, w))
    return value
def work():
    w.assign(tf.random.stateless_normal((32, 16), (1, 2)))
    data = tf.data.Dataset.range(5).map(lambda n: tf.random.stateless_normal((64, 32), (3, n)))
    return [float(step(x)).hex() for x in data]
loop(work)
"""
)
# Every signal that reaches it, to the last one: the C handler writes a byte for each.
COUNTING = (
    LOOP
    + """
import os, signal
ours, theirs = os.pipe()
os.set_blocking(ours, False)
os.set_blocking(theirs, False)
signal.set_wakeup_fd(theirs)
signal.signal(signal.SIGRTMIN, lambda *_: None)
signal.signal(signal.SIGPROF, lambda *_: None)
signal.setitimer(signal.ITIMER_PROF, 0.003, 0.003)
seen = []
def drain():
    try:
        seen.append(os.read(ours, 65536).count(signal.SIGRTMIN))
    except BlockingIOError:
        pass
def work():
    drain()
    return sum(range(5000))
def tell():
    signal.setitimer(signal.ITIMER_PROF, 0)
    drain()
    return sum(seen)
loop(work, tell)
"""
)
# What is run inside by default: it counts itself, where no code of the job sees it.
COUNT = b"import builtins; builtins._injections = getattr(builtins, '_injections', 0) + 1"
# Of waitpid(2): for threads, too.
_WALL = 0x40000000
# A tracer that goes in again and again, to be killed at any moment.
FOREVER = f"""
import sys
from whyidle.monitor.attach.ptrace.inject import inject
from whyidle.monitor.attach.ptrace.refused import Refused
print("ready", flush=True)
while True:
    try:
        inject(int(sys.argv[1]), int(sys.argv[2]), {COUNT!r}, 5.0)
    except Refused:
        pass
"""


@dataclass
class Victim:
    """A job of ours that runs."""

    process: subprocess.Popen[str]

    @property
    def key(self) -> ProcessKey:
        """Who it is."""
        stat = ProcFs().stat(self.process.pid)
        assert stat is not None
        return ProcessKey(self.process.pid, stat.start_ticks)

    def enter(self, source: bytes = COUNT, timeout: float = 20.0) -> Injected:
        """Have it run source code."""
        return inject(*self.key, source, timeout)

    def end(self) -> dict[str, Any]:
        """Let it finish, and return its results."""
        said, _ = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0, self.process.returncode
        result: dict[str, Any] = json.loads(said.splitlines()[-1])
        return result


@contextmanager
def running(source: str, *, python: str = sys.executable, **options: Any) -> Iterator[Victim]:
    """Start a job and wait until it works."""
    process = subprocess.Popen(
        [python, "-X", "faulthandler", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Victim(process)
        finally:
            process.kill()
            _collect_threads(process.pid)


def _collect_threads(pid: int) -> None:
    """Collect threads that we trace: until then the end of their process is not reported.

    One that gives up leaves a thread traced until its own process ends: here, that is us.
    """
    for path in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(ChildProcessError):
            while path.name != str(pid):
                os.waitpid(int(path.name), _WALL)


def interpreters() -> list[str]:
    """Return one Python of each version that is here, and ours."""
    home = Path.home() / ".pyenv" / "versions"
    found: dict[str, str] = {}
    for minor in range(9, 15):
        name = f"python3.{minor}"
        paths = [shutil.which(name), *map(str, sorted(home.glob(f"3.{minor}.*/bin/python3")))]
        # A shim only says that its version is not the chosen one.
        for path in (p for p in paths if p is not None and "/shims/" not in p):
            found.setdefault(name, path)
    return [sys.executable, *found.values()]
