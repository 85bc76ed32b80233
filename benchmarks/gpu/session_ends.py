"""Ways to end JAX's profiler in a job that works, and whether the job survives them.

Run: python benchmarks/gpu/session_ends.py NAME SECONDS

A name is made of: who ends it (``thread``, ``main``, or a thread while the main one is ``held``),
what the job does (``read`` each step, or run ``async``), and ``nograph`` where XLA builds no CUDA
graphs, ``putter`` where another thread copies to the GPU, ``msync`` and ``tsync`` where it waits
for all before, ``hostonly`` where no GPU is traced. Nothing of whyidle is in it. It prints one line
of JSON; tests/data/gpu has those of a GPU, a name each, twelve at once.
"""

import json
import os
import statistics
import sys
import threading
import time

name, seconds = sys.argv[1], float(sys.argv[2])
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
if "nograph" in name:
    os.environ["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer="
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.profiler import _profiler

n = 1024
x = jax.random.normal(jax.random.key(0), (n, n))


@jax.jit
def several(y):
    for _ in range(20):
        y = jnp.tanh(y @ x) * 0.01
    return y


def opts():
    o = _profiler.ProfileOptions()
    o.python_tracer_level = 0
    o.host_tracer_level = 2
    if "hostonly" in name:
        o.advanced_configuration = {"whyidle_host_only": True}
    return o


def sync():
    for a in jax.live_arrays():
        a.block_until_ready()


taken, sizes, times, inside = [0], [], [], [False]
over = threading.Event()
hold, held, go = threading.Event(), threading.Event(), threading.Event()


def take():
    return _profiler.ProfilerSession(opts())


def by_thread():
    while not over.is_set():
        s = take()
        inside[0] = True
        time.sleep(0.12)
        if "held" in name:
            go.clear()
            hold.set()
            held.wait(5)
        if "tsync" in name:
            sync()
        c = s.stop()
        inside[0] = False
        if "held" in name:
            hold.clear()
            go.set()
            held.clear()
        taken[0] += 1
        sizes.append(len(c))
        del s, c
        time.sleep(0.1)


def putter():
    a = np.ones((256, 1024), np.float32)
    while not over.is_set():
        b = jax.device_put(a)
        float(b[0, 0])


for _ in range(30):
    several(x).block_until_ready()
if "thread" in name:
    threading.Thread(target=by_thread, daemon=True).start()
if "putter" in name:
    threading.Thread(target=putter, daemon=True).start()
out = {"name": name, "error": None}
s, y = None, x
began = last = time.monotonic()
try:
    rounds = 0
    while time.monotonic() - began < seconds and taken[0] < 80:
        rounds += 1
        t = time.perf_counter()
        if "async" in name:
            y = several(y)
            if rounds % 50 == 0:
                y.block_until_ready()
        else:
            np.asarray(several(x))
        times.append((inside[0] or s is not None, time.perf_counter() - t))
        if hold.is_set():
            held.set()
            go.wait(5)
        if "main" in name:
            if s is None and time.monotonic() - last > 0.1:
                s = take()
                last = time.monotonic()
            elif s is not None and time.monotonic() - last > 0.12:
                if "msync" in name:
                    sync()
                c = s.stop()
                s = None
                taken[0] += 1
                sizes.append(len(c))
                last = time.monotonic()
    over.set()
    time.sleep(0.5)
    y.block_until_ready()
    np.asarray(several(x))
except BaseException as error:
    out["error"] = f"{type(error).__name__}: {error}"[:300]


def med(v):
    return round(1000 * statistics.median(v), 4) if v else None


out |= {
    "taken": taken[0],
    "rounds": rounds,
    "bytes": sizes[:3] + sizes[-2:],
    "outside_ms": med([t for i, t in times if not i]),
    "inside_ms": med([t for i, t in times if i]),
    "first_ms": med([t for _, t in times[:100]]),
    "lasts_ms": med([t for i, t in times[-200:] if not i]),
}
print(json.dumps(out), flush=True)
os._exit(0)
