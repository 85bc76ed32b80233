"""Train a network to fill the holes in pictures.

Run: python demo_workloads/host_random_numbers/before_jax.py --seconds 20
"""

import argparse
import random
import time

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
PIXELS, HIDDEN = 784, 64
BATCH = 512
WARM_UP = 10
RATE, KEPT = 0.05, 0.7

Params = list[jax.Array]


def network() -> Params:
    """Return the weights of a network with one hidden layer."""
    rng = np.random.default_rng(SEED)
    into = rng.standard_normal((PIXELS, HIDDEN), dtype=np.float32) * PIXELS**-0.5
    return list(jax.device_put([into, into.T.copy()]))


def loss(params: Params, x: jax.Array, kept: jax.Array) -> jax.Array:
    into, out = params
    return jnp.mean(jnp.square(jnp.tanh((x * kept) @ into) @ out - x))


@jax.jit
def step(params: Params, x: jax.Array, kept: jax.Array) -> Params:
    slope = jax.grad(loss)(params, x, kept)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)]


def train(seconds: float, steps: int) -> None:
    random.seed(SEED)
    key = jax.random.key(SEED)
    x = jax.random.uniform(key, (BATCH, PIXELS))
    params = network()
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        kept = np.array([random.random() < KEPT for _ in range(BATCH * PIXELS)])
        params = step(params, x, kept.reshape(BATCH, PIXELS))
        done += 1
        if done == 0:
            params[0].block_until_ready()
            began = time.perf_counter()
    params[0].block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
