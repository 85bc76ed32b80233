"""How long the end of a session of JAX's profiler takes, by the size of a constant of the program.

Run: python benchmarks/gpu/constants.py

An array that a jitted function takes from around it becomes a constant of the program, and the
program is part of each trace. Nothing of whyidle is in it. It prints a line of JSON for each size;
tests/data/gpu has those of a GPU.
"""

import json
import time

import jax
from jax._src.profiler import _profiler

SIDES = (64, 2048, 4096, 8192)
SESSIONS = 2

for side in SIDES:
    table = jax.random.normal(jax.random.key(1), (side, side))
    run = jax.jit(lambda x, table=table: ((table @ x) ** 2).mean())
    run(table).block_until_ready()
    options = _profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 2
    took = 0.0
    size = 0
    # The first one also takes what is done once.
    for _ in range(SESSIONS):
        session = _profiler.ProfilerSession(options)
        run(table).block_until_ready()
        time.sleep(0.05)
        began = time.perf_counter()
        size = len(session.stop())
        took = time.perf_counter() - began
        del session
    row = {"mb": table.nbytes / 1e6, "stop_ms": 1000 * took, "bytes": size}
    print(json.dumps(row), flush=True)
