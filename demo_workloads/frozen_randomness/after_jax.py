"""Train a network with noise on its input, so that it does not learn the samples by heart.

The noise of the program before is drawn once, when the step is compiled, and never again: this
pair is about a wrong result, not about time.

Run: python demo_workloads/frozen_randomness/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
FEATURES, WIDTH, CLASSES = 64, 512, 10
BATCH = 128
RATE, NOISE = 0.05, 0.1
WARM_UP = 5
Params = list[jax.Array]


def network(params: Params, x: jax.Array) -> jax.Array:
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ params[-1]


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    chances = jax.nn.log_softmax(network(params, x))
    return -jnp.take_along_axis(chances, y[:, None], axis=1).mean()


@jax.jit
def step(params: Params, x: jax.Array, y: jax.Array, key: jax.Array) -> tuple[Params, jax.Array]:
    noise = jax.random.normal(key, x.shape)
    value, gradient = jax.value_and_grad(loss)(params, x + NOISE * noise, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), value


def parameters(random: np.random.Generator) -> Params:
    sizes = [FEATURES, WIDTH, WIDTH, CLASSES]
    return [
        jnp.asarray(random.standard_normal((m, n), np.float32) * m**-0.5)
        for m, n in pairwise(sizes)
    ]


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    key = jax.random.key(SEED)
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = random.standard_normal((BATCH, FEATURES), np.float32)
        y = random.integers(0, CLASSES, BATCH)
        key, fresh = jax.random.split(key)
        params, value = step(params, x, y, fresh)
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
