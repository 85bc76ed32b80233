"""Train a small network that reads one sample after the other.

Run: python demo_workloads/python_loop_over_batch/before_jax.py --seconds 20
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, CLASSES = 64, 128, 10
BATCH = 32
RATE = 0.05
WARM_UP = 5
Params = dict[str, jax.Array]
Tree = Any  # arrays in tuples and dicts


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """The loss of one sample."""
    hidden = jnp.tanh(x @ params["in"])
    hidden = jnp.tanh(hidden @ params["middle"])
    return -jax.nn.log_softmax(hidden @ params["out"])[y]


@jax.jit
def gradient_of_one(params: Params, x: jax.Array, y: jax.Array) -> Tree:
    return jax.value_and_grad(loss)(params, x, y)


@jax.jit
def add(total: Tree, one: Tree) -> Tree:
    return jax.tree.map(jnp.add, total, one)


def gradient_one_by_one(params: Params, x: np.ndarray, y: np.ndarray) -> Tree:
    total = gradient_of_one(params, x[0], y[0])
    for i in range(1, BATCH):
        total = add(total, gradient_of_one(params, x[i], y[i]))
    return total


@jax.jit
def gradient_of_batch(params: Params, x: jax.Array, y: jax.Array) -> Tree:
    each = jax.vmap(gradient_of_one, in_axes=(None, 0, 0))(params, x, y)
    return jax.tree.map(lambda values: values.sum(0), each)


@jax.jit
def descend(params: Params, gradient: Params) -> Tree:
    return jax.tree.map(lambda p, g: p - RATE / BATCH * g, params, gradient)


def parameters(random: np.random.Generator) -> Params:
    shapes = {"in": (FEATURES, WIDTH), "middle": (WIDTH, WIDTH), "out": (WIDTH, CLASSES)}
    return {
        name: jnp.asarray(random.standard_normal(shape, np.float32) * shape[0] ** -0.5)
        for name, shape in shapes.items()
    }


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = random.standard_normal((BATCH, FEATURES), np.float32)
        y = random.integers(0, CLASSES, BATCH)
        _, gradient = gradient_one_by_one(params, x, y)
        params = descend(params, gradient)
        params["in"].block_until_ready()
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
