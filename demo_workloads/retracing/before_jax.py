"""Train a small network to label the frames of sound recordings, each of a length of its own.

Run: python demo_workloads/retracing/before_jax.py --seconds 20
"""

import argparse
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, LABELS = 64, 512, 8
SHORTEST, LONGEST = 200, 2048
BUCKET = 512  # lengths are rounded up to a multiple of it
BATCH = 1
WARM_UP = 12
Params = dict[str, jax.Array]


def recordings(random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Frames, and their labels as zeros and ones; frames without a label do not count."""
    while True:
        length = int(random.integers(SHORTEST, LONGEST))
        frames = random.standard_normal((length, FEATURES), np.float32)
        yield frames, np.eye(LABELS, dtype=np.float32)[frames[:, :LABELS].argmax(1)]


def padded(array: np.ndarray) -> np.ndarray:
    return np.pad(array, ((0, -len(array) % BUCKET), (0, 0)))


def loss(params: Params, frames: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jnp.tanh(frames @ params["in"])
    hidden = jnp.tanh(hidden @ params["middle"])
    error = (hidden @ params["out"] - labels) ** 2
    return (error * labels.sum(1, keepdims=True)).sum() / labels.sum()


@jax.jit
def step(params: Params, frames: jax.Array, labels: jax.Array) -> tuple[Params, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, frames, labels)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value


def parameters(random: np.random.Generator) -> Params:
    shapes = {"in": (FEATURES, WIDTH), "middle": (WIDTH, WIDTH), "out": (WIDTH, LABELS)}
    return {
        name: jnp.asarray(random.standard_normal(shape, np.float32) * shape[0] ** -0.5)
        for name, shape in shapes.items()
    }


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    done, began = -WARM_UP, time.perf_counter()
    for frames, labels in recordings(random):
        with jax.profiler.StepTraceAnnotation("train", step_num=done):
            params, value = step(params, frames, labels)
            value.block_until_ready()
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
