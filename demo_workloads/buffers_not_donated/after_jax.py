"""Train a network whose parameters and moments are most of its memory.

This pair is about memory, not time: while a step runs, there are both the old state and the new.

Run: python demo_workloads/buffers_not_donated/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, LAYERS = 256, 1024, 3
BATCH = 16
RATE, KEEP, KEEP_SQUARE, LEAST = 1e-3, 0.9, 0.999, 1e-8
WARM_UP = 5
Params = list[jax.Array]
State = tuple[Params, Params, Params]


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    return ((x @ params[-1] - y) ** 2).mean()


def train_step(state: State, x: jax.Array, y: jax.Array) -> tuple[State, jax.Array]:
    params, mean, square = state
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    mean = jax.tree.map(lambda m, g: KEEP * m + (1 - KEEP) * g, mean, gradient)
    square = jax.tree.map(
        lambda s, g: KEEP_SQUARE * s + (1 - KEEP_SQUARE) * g * g, square, gradient
    )
    params = jax.tree.map(
        lambda p, m, s: p - RATE * m / (jnp.sqrt(s) + LEAST), params, mean, square
    )
    return (params, mean, square), value


step = jax.jit(train_step, donate_argnums=(0,))


def first_state(random: np.random.Generator) -> State:
    sizes = [FEATURES, *[WIDTH] * LAYERS, 1]
    params = [
        jnp.asarray(random.standard_normal((m, n), np.float32) * m**-0.5)
        for m, n in pairwise(sizes)
    ]
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, zeros, jax.tree.map(jnp.copy, zeros)


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    state = first_state(random)
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = random.standard_normal((BATCH, FEATURES), np.float32)
        state, value = step(state, x, x[:, :1])
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
