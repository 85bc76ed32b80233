"""Tries of every knob in several kinds of jobs, whose monitor is killed at random moments.

Run: .venv/bin/python benchmarks/tries.py [--seconds 100] [--write]
Each job must have the settings that it had before, a few seconds after each kill, and end with the
same result as its undisturbed twin, which makes as many steps. ``--write`` adds to
``figures.json``. What a try says is compared with the truth by ``tries_coverage.py``.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from whyidle.monitor.app import try_
from whyidle.monitor.core.paths import VARIABLE
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.trying.thread_settings import SETTINGS, Family

FILE = Path(__file__).parent / "figures.json"
# The monitor enters within the first second, and then turns the knob each second or so.
EARLIEST_S, LATEST_S = 0.1, 4.5
BACK_S = 12.0
# What all jobs have: steps whose digest grows with each, settings on demand, an end on demand.
FRAME = """
import gc, hashlib, json, os, sys, threading, time
STEPS = int(sys.argv[1])
asked, over, digest, done = [], threading.Event(), hashlib.sha256(), 0
def hear():
    # By its number: workers that are forked close sys.stdin, whose lock this thread would hold.
    while os.read(0, 1):
        asked.append(1)
    over.set()
if not STEPS:
    threading.Thread(target=hear, daemon=True).start()
def after_step(value):
    # On the main thread: some of it belongs to each thread.
    global done
    digest.update(repr(value).encode()); done += 1
    if STEPS:
        return done < STEPS
    if asked:
        asked.pop()
        threads = torch.get_num_threads() if "torch" in sys.modules else None
        print(json.dumps([gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(),
                          sys.getswitchinterval(), threads]), flush=True)
    time.sleep(0.004)
    return not over.is_set()
def finish():
    print(json.dumps([done, digest.hexdigest()]), flush=True)
"""
TORCH = """
import torch
torch.manual_seed(1); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def step(batch):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    circle = []; circle.append(circle)
    return loss.item()
"""
JOBS = {
    "torch": TORCH + "while after_step(step(torch.randn(8, 16))): pass\nfinish()\nos._exit(0)\n",
    "torch, loader workers": TORCH
    + """
class Noise(torch.utils.data.Dataset):
    def __len__(self): return 10_000_000
    def __getitem__(self, n): return torch.sin(torch.arange(16.0) * n)
loader = torch.utils.data.DataLoader(Noise(), batch_size=4, num_workers=2)
for batch in loader:
    if not after_step(step(batch)): break
finish()
os._exit(0)
""",
    "jax": """
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, whyidle.monitor
update = jax.jit(lambda w, k: w - 1e-3 * jnp.tanh(w @ jax.random.normal(k, (16, 16))))
weights, key = jnp.ones((16, 16)), jax.random.PRNGKey(1)
while True:
    key, sub = jax.random.split(key)
    weights = update(weights, sub)
    whyidle.monitor.step()
    if not after_step(float(weights.sum())): break
finish()
os._exit(0)
""",
}
EVERYWHERE = ["gc.freeze", "gc.threshold=5000", "gc.disable", "python.switch_interval=0.001",
              "cpu.affinity=0"]  # fmt: skip
KNOBS = {
    "torch": [*EVERYWHERE, "torch.threads=2", "cudnn.benchmark"],
    "torch, loader workers": [*EVERYWHERE, "torch.threads=2", "helpers.nice", "helpers.ionice"],
    "jax": EVERYWHERE,
}


class Job:
    """One job that runs."""

    def __init__(self, kind: str, source: str = "") -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            [sys.executable, "-c", FRAME + (source or JOBS[kind]), "0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.inside()
        stat = ProcFs().stat(self.process.pid)
        assert stat is not None
        key = ProcessKey(self.process.pid, stat.start_ticks)
        self.family = Family(key, ProcFs(), helpers_only=False)

    def inside(self) -> Any:
        """Return what the job says of its own settings."""
        return asked(self.process)

    def settings(self) -> Any:
        """Return all that a knob may change; of threads the sorted values of each process."""
        outside: dict[str, Any] = {}
        for thread in self.family.threads():
            try:
                values = [SETTINGS[name].read(thread.tid) for name in sorted(SETTINGS)]
            except OSError:
                continue
            outside.setdefault(str(thread.pid), set()).add(json.dumps(values))
        return [self.inside(), {pid: sorted(each) for pid, each in outside.items()}]

    def end(self) -> Any:
        """End it; return its steps and their digest."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        found = json.loads(self.process.stdout.readline())
        self.process.wait(30)
        return found


def asked(process: subprocess.Popen[str]) -> Any:
    """Return what a job answers when it is asked."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("?")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def twin(kind: str, steps: int) -> Any:
    """Return the same of an undisturbed job that makes so many steps."""
    command = [sys.executable, "-c", FRAME + JOBS[kind], str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def fork_monitor(pid: int, knob: str, seconds: float, into: int | None = None) -> int:
    """Run the command in a child, which is a monitor that can be killed."""
    child = os.fork()
    if child:
        return child
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(into if into is not None and number == 1 else nowhere, number)
    try:
        try_.run(
            pid=str(pid), knob=knob, seconds=seconds, keep=False, numerics=True, suggest=False,
            listed=False, as_json=True,
        )  # fmt: skip
    except BaseException as error:  # noqa: BLE001  told to who asked
        if into is not None:
            os.write(into, json.dumps({"error": repr(error)}).encode())
    finally:
        sys.stdout.flush()
        os._exit(0)


def tries_in(kind: str, seconds: float, seed: int) -> dict[str, Any]:
    """Try in one job until the time is over; return what was seen."""
    rng = random.Random(seed)
    job = Job(kind)
    before = job.settings()
    found: dict[str, Any] = {"tries": 0, "on": 0, "wrong": [], "back_s": [], "knobs": {}}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        knob = rng.choice(KNOBS[kind])
        monitor = fork_monitor(job.process.pid, knob, 60)
        time.sleep(rng.uniform(EARLIEST_S, LATEST_S))
        was_on = job.settings() != before
        os.kill(monitor, signal.SIGINT if rng.random() < 0.2 else signal.SIGKILL)
        killed = time.monotonic()
        while (now := job.settings()) != before and time.monotonic() - killed < BACK_S:
            time.sleep(0.02)
        os.waitpid(monitor, 0)
        found["tries"] += 1
        found["on"] += was_on
        found["knobs"][knob.partition("=")[0]] = found["knobs"].get(knob.partition("=")[0], 0) + 1
        if was_on:
            found["back_s"].append(time.monotonic() - killed)
        if now != before:
            found["wrong"].append([knob, before, now])
    steps, digest = job.end()
    found["same_result"] = twin(kind, steps) == [steps, digest]
    found["steps"] = steps
    return found


def kills(seconds: float, jobs: int) -> dict[str, Any]:
    """Try in several jobs at once."""
    kinds = [list(JOBS)[n % len(JOBS)] for n in range(jobs)]
    seed = int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory() as folder:
        parts = [
            subprocess.Popen(
                [sys.executable, __file__, "--kind", kind, "--seconds", str(seconds), "--seed",
                 str(seed + n)], stdout=subprocess.PIPE, text=True,
                env={**os.environ, VARIABLE: f"{folder}/{n}"},
            )
            for n, kind in enumerate(kinds)
        ]  # fmt: skip
        found = [json.loads(part.communicate()[0]) for part in parts]
    return {
        "jobs": jobs,
        "tries": sum(each["tries"] for each in found),
        "killed while on": sum(each["on"] for each in found),
        "settings that stayed": sum(len(each["wrong"]) for each in found),
        "results that differ": sum(not each["same_result"] for each in found),
        "slowest back s": max((s for each in found for s in each["back_s"]), default=0.0),
        "knobs": {
            name: sum(each["knobs"].get(name, 0) for each in found)
            for name in sorted({name for each in found for name in each["knobs"]})
        },
        "wrong": [wrong for each in found for wrong in each["wrong"]],
    }


def add(figures: dict[str, Any], new: dict[str, Any]) -> None:
    """Add to what was found before: numbers add up, the slowest stays."""
    kept = figures.setdefault("try", {}).setdefault("kills", {})
    for name, value in new.items():
        old = kept.get(name)
        if old is None:
            kept[name] = value
        elif isinstance(value, dict):
            kept[name] = {n: old.get(n, 0) + value.get(n, 0) for n in sorted({*old, *value})}
        elif isinstance(value, float):
            kept[name] = max(old, value)
        else:
            kept[name] = old + value


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kind:
        # Where one hangs, it says at which line.
        faulthandler.dump_traceback_later(given.seconds + 60, exit=True)
    if given.kind:
        print(json.dumps(tries_in(given.kind, given.seconds, given.seed)))
        return
    found = kills(given.seconds, given.jobs)
    if given.write:
        figures = json.loads(FILE.read_text())
        add(figures, found)
        FILE.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
