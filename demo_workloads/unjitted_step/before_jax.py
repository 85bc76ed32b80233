"""Train a small network on fresh batches, by a step that is written as plain JAX.

Run: python demo_workloads/unjitted_step/before_jax.py --seconds 20
"""

import argparse
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, LAYERS, CLASSES = 64, 128, 3, 10
BATCH = 64
RATE, MOMENTUM = 0.05, 0.9
WARM_UP = 5
Params = list[tuple[jax.Array, jax.Array]]
Data = np.ndarray | jax.Array


def network(params: Params, x: Data) -> Data:
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss(params: Params, x: Data, y: Data) -> jax.Array:
    chances = jax.nn.log_softmax(network(params, x))
    return -jnp.take_along_axis(chances, y[:, None], axis=1).mean()


def step(params: Params, speed: Params, x: Data, y: Data) -> tuple[Params, Params, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    speed = jax.tree.map(lambda v, g: MOMENTUM * v + g, speed, gradient)
    return jax.tree.map(lambda p, v: p - RATE * v, params, speed), speed, value


def parameters(random: np.random.Generator) -> Params:
    sizes = [FEATURES, *[WIDTH] * LAYERS, CLASSES]
    return [
        (jnp.asarray(random.standard_normal((m, n), np.float32) * m**-0.5), jnp.zeros(n))
        for m, n in pairwise(sizes)
    ]


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    speed = jax.tree.map(jnp.zeros_like, params)
    update = step
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = random.standard_normal((BATCH, FEATURES), np.float32)
        y = random.integers(0, CLASSES, BATCH)
        with jax.profiler.StepTraceAnnotation("train", step_num=done):
            params, speed, value = update(params, speed, x, y)
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
