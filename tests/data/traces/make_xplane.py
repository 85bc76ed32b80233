"""Record the profiles in xplane/ again: ``cd tests/data/traces && python make_xplane.py``.

A small training step on jax's CPU backend, as people write it: it is the user's code of all of
them. Folders are cut off the names of files, so none of the machine stay.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.lib import _profiler

HERE = Path("xplane")
STEPS = 12
FEATURES = 64

Weights = dict[str, jax.Array]


def loss(weights: Weights, batch: jax.Array) -> jax.Array:
    """Two layers."""
    hidden = jnp.tanh(batch @ weights["hidden"])
    out = jax.nn.softmax(hidden @ weights["out"])
    return (out**2).mean()


@jax.jit
def train_step(weights: Weights, batch: jax.Array) -> tuple[Weights, jax.Array]:
    """One step of gradient descent."""
    value, slope = jax.value_and_grad(loss)(weights, batch)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, slope), value


def next_batch(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Slow on purpose: a row at a time, in Python."""
    return np.stack([rng.standard_normal(FEATURES) for _ in range(rows)]).astype(np.float32)


def train(*, marked: bool, rows: list[int]) -> None:
    """The loop; another number of rows compiles the step again."""
    rng = np.random.default_rng(1)
    weights: Weights = {
        "hidden": jnp.asarray(rng.standard_normal((FEATURES, 128)), jnp.float32),
        "out": jnp.asarray(rng.standard_normal((128, 32)), jnp.float32),
    }
    for step, size in enumerate(rows):
        if marked:
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                weights, value = train_step(weights, next_batch(rng, size))
                float(value)
        else:
            weights, value = train_step(weights, next_batch(rng, size))
            float(value)


def record(name: str, *, frames: bool, marked: bool, rows: list[int]) -> None:
    """Profile the loop once it is warm; ProfilerSession writes nothing but the XPlane."""
    train(marked=marked, rows=rows[:1])
    options = _profiler.ProfileOptions()
    options.python_tracer_level = int(frames)
    options.host_tracer_level = 2
    session = _profiler.ProfilerSession(options)
    train(marked=marked, rows=rows)
    HERE.mkdir(exist_ok=True)
    with gzip.GzipFile(HERE / f"{name}.xplane.pb.gz", "wb", mtime=0) as file:
        file.write(session.stop())


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    record("cpu_marked_frames", frames=True, marked=True, rows=[48] * STEPS)
    record("cpu_plain", frames=False, marked=False, rows=[48] * STEPS)
    record("cpu_retraced", frames=False, marked=False, rows=[48, 48, 56, 48])
