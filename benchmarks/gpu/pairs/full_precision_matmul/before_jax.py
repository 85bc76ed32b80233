"""Train large dense layers, whose products are all in float32.

Run: python benchmarks/gpu/pairs/full_precision_matmul/before_jax.py --seconds 20
"""

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp

SEED = 1
WARM, LOOK_EVERY = 5, 20
ON_GPU = jax.default_backend() == "gpu"
BATCH, WIDTH, LAYERS = (8192, 4096, 6) if ON_GPU else (64, 128, 6)
RATE = 1e-3


def loss(params: list[jax.Array], x: jax.Array) -> jax.Array:
    for kernel in params:
        x = x + jax.nn.relu(x @ kernel)
    return jnp.square(x.astype(jnp.float32)).mean()


def train_step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, x)
    return [p - RATE * g for p, g in zip(params, gradient, strict=True)], value


def training() -> tuple[list[jax.Array], Iterator[jax.Array], Callable[..., Any]]:
    key, *keys = jax.random.split(jax.random.key(SEED), LAYERS + 1)
    params = [jax.random.normal(k, (WIDTH, WIDTH)) * WIDTH**-0.5 for k in keys]
    x = jax.random.normal(key, (BATCH, WIDTH))
    return params, repeat(x), jax.jit(train_step, donate_argnums=0)


def train(seconds: float, steps: int) -> None:
    state, batches, step = training()
    done, began = -WARM, time.perf_counter()
    while done < steps and (done <= 0 or time.perf_counter() - began < seconds):
        state, loss = step(state, next(batches))
        done += 1
        if done % LOOK_EVERY == 0:
            print(f"loss {float(loss):.3f}")
        if done == 0:
            began = time.perf_counter()
    jax.block_until_ready(state)
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
