"""Train a small network, and watch how often it is right while it learns.

Run: python demo_workloads/forward_run_twice/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, LAYERS, CLASSES = 64, 512, 4, 10
BATCH = 128
RATE = 0.05
WARM_UP = 5
Params = list[jax.Array]


def loss(params: Params, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    said = x @ params[-1]
    chances = jnp.take_along_axis(jax.nn.log_softmax(said), y[:, None], axis=1)
    return -chances.mean(), (said.argmax(1) == y).mean()


forward = jax.jit(loss)
backward = jax.jit(jax.grad(loss, has_aux=True))
both = jax.jit(jax.value_and_grad(loss, has_aux=True))


def one_after_the_other(
    params: Params, x: np.ndarray, y: np.ndarray
) -> tuple[jax.Array, jax.Array, Params]:
    value, right = forward(params, x, y)
    gradient, _ = backward(params, x, y)
    return value, right, gradient


def at_once(params: Params, x: np.ndarray, y: np.ndarray) -> tuple[jax.Array, jax.Array, Params]:
    (value, right), gradient = both(params, x, y)
    return value, right, gradient


@jax.jit
def descend(params: Params, gradient: Params) -> Params:
    return [p - RATE * g for p, g in zip(params, gradient, strict=True)]


def parameters(random: np.random.Generator) -> Params:
    sizes = [FEATURES, *[WIDTH] * LAYERS, CLASSES]
    return [
        jnp.asarray(random.standard_normal((m, n), np.float32) * m**-0.5)
        for m, n in pairwise(sizes)
    ]


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = random.standard_normal((BATCH, FEATURES), np.float32)
        y = random.integers(0, CLASSES, BATCH)
        value, right, gradient = at_once(params, x, y)
        params = descend(params, gradient)
        params[0].block_until_ready()
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    took = time.perf_counter() - began
    print(f"loss {value:.3f}, {right:.0%} right")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
