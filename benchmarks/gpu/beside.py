"""Traces of ours, one after the other, in a job that runs a profiler of its own.

There is one CUPTI in a process: the job's own traces must stay whole, and ours must be refused
while its profiler runs. Where it seldom runs, ours come; what steps take before and after them
shows whether anything of theirs was left behind.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any, Final

from benchmarks.gpu.runner import Check, Failed, Result, monitor, need
from tests.attach.victims import LOOP, Victim, running

TRACES, SECONDS = 6, "0.25"
# Every so many rounds it profiles itself, from which on: with room for windows of ours, or hardly.
KINDS: Final = {"seldom": (2000, 1000), "most of the time": (60, 20)}
OWN: Final = 10
PATIENCE_SECONDS: Final = 15.0
REST_SECONDS: Final = 2.0
WORK: Final = """
import statistics
times, counts, rounds = [], [], 0
def work():
    global rounds
    rounds += 1
    if rounds % EVERY == AT:
        start()
    began = time.perf_counter()
    step()
    times.append((time.monotonic(), time.perf_counter() - began))
    if rounds % EVERY == AT + OWN:
        counts.append(stop())
def tell():
    if rounds % EVERY in range(AT, AT + OWN):
        stop()
    began, ended = times[0][0], times[-1][0]
    first = [took for at, took in times if at < began + 2]
    last = [took for at, took in times if at > ended - 1]
    ms = [1000 * statistics.median(each) for each in (first, last)]
    seconds = [[took for at, took in times if began + s <= at < began + s + 1]
               for s in range(int(ended - began))]
    by_second = [round(1000 * statistics.median(each), 3) if each else None for each in seconds]
    return {"counts": counts, "first_ms": ms[0], "last_ms": ms[1], "by_second_ms": by_second,
            "began": began, "device": device}
for _ in range(30):
    step()
loop(work, tell)
"""
TORCH: Final = """
import torch
from torch.profiler import ProfilerActivity, profile
device = "cuda" if torch.cuda.is_available() else "cpu"
n = 1024 if device == "cuda" else 64
layers = [each for _ in range(20) for each in (torch.nn.Linear(n, n), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).to(device)
best = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(n, n, device=device)
def step():
    best.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    best.step()
    loss.item()
def start():
    global profiler
    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    profiler.start()
def stop():
    profiler.stop()
    return sum(str(e.device_type).endswith(device.upper()) for e in profiler.events())
"""
# The whole step as one graph: no optimizer steps in it, the loader's batches tell the steps.
GRAPHS: Final = TORCH.replace(
    "def start():",
    """
if device == "cuda":
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    best.zero_grad()
    with torch.cuda.graph(graph):
        loss = model(x).square().mean()
        loss.backward()
        best.step()
    batches = iter(torch.utils.data.DataLoader(range(10**9), batch_size=1))
    def step():
        next(batches)
        graph.replay()
        loss.item()
def start():""",
    1,
)
JAX: Final = """
import glob, tempfile
import jax, jax.numpy as jnp
device = jax.default_backend()
n = 1024 if device == "gpu" else 64
x = jax.random.normal(jax.random.key(0), (n, n))
@jax.jit
def several(y):
    for _ in range(20):
        y = jnp.tanh(y @ x) * 0.01
    return y.sum()
def step():
    float(several(x))
def start():
    global folder
    folder = tempfile.TemporaryDirectory()
    jax.profiler.start_trace(folder.name)
def stop():
    jax.profiler.stop_trace()
    (path,) = glob.glob(folder.name + "/**/*.xplane.pb", recursive=True)
    planes = jax.profiler.ProfileData.from_file(path).planes
    named = {"gpu": "/device:GPU"}.get(device, "/host:CPU")
    found = sum(1 for p in planes if p.name.startswith(named) for line in p.lines
                for e in line.events if "hlo_op" in dict(e.stats) and not e.name.startswith("end:"))
    folder.cleanup()
    return found
"""
JOBS: Final = {"torch": TORCH, "torch, CUDA graphs": GRAPHS, "jax": JAX}


def beside_torch(check: Check) -> None:
    """Trace jobs that run torch.profiler."""
    for job in ("torch", "torch, CUDA graphs"):
        _both(check, job)


def beside_jax(check: Check) -> None:
    """Trace a job that runs jax.profiler."""
    _both(check, "jax")


def _both(check: Check, job: str) -> None:
    for kind in ("seldom",) if check.quick else KINDS:
        check.do(f"{job}: its own runs {kind}", _beside, job, kind)


def _beside(check: Check, part: Result, job_name: str, kind: str) -> None:
    need(job_name.partition(",")[0])
    every, at = KINDS[kind]
    numbers = f"EVERY, AT, OWN = {every}, {at}, {OWN}\n"
    with running(LOOP + JOBS[job_name] + numbers + WORK) as job:
        taken, moments = [], []
        for _ in range(2 if check.quick else TRACES):
            taken.append(_trace(job.process.pid))
            moments.append(time.monotonic())
        # Its last second is to show what is left behind, not what the last trace takes meanwhile.
        time.sleep(REST_SECONDS)
        facts = _end(job)
    counts, began = facts.pop("counts"), facts.pop("began")
    part.figures = {
        **facts,
        "own_traces": len(counts),
        "own_counts": sorted({*counts}),
        "ours": [each for each in taken if isinstance(each, int)],
        "refused": sorted({each for each in taken if isinstance(each, str)}),
        "ours_done_s": [round(moment - began, 1) for moment in moments],
    }
    check.see_device(facts["device"])
    # The first may hold what is done once.
    if counts and max(counts) > 1.05 * min(counts):
        raise Failed(f"its own traces are not alike: {sorted({*counts})}")
    if kind == "seldom" and not part.figures["ours"]:
        raise Failed(f"none of ours came: {part.figures['refused']}")


def _end(job: Victim) -> dict[str, Any]:
    """Let it finish; where it does not, have it say where it stands."""
    try:
        said, _ = job.process.communicate("\n", timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        # The log then has the lines of its threads.
        job.process.send_signal(signal.SIGABRT)
        job.process.wait(PATIENCE_SECONDS)
        raise Failed("it did not end when it was told to") from None
    if job.process.returncode:
        raise Failed(f"it ended with code {job.process.returncode}")
    more: dict[str, Any] = json.loads(said.splitlines()[-1])["more"]
    return more


def _trace(pid: int) -> int | str:
    """Take a trace; return how many events it has, or why there is none."""
    try:
        found: dict[str, Any] = monitor("trace", str(pid), "--seconds", SECONDS, "--json")[0]
    except Failed as refused:
        return str(refused)
    return int(found["events"])
