"""Measure how long a training step takes; no time is lost here, but the figure may be wrong.

Run: python demo_workloads/too_little_after_warmup/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
WIDTH, DEPTH = 512, 12
BATCH = 512
WARM_UP, MOST = 3, 10**9
RATE = 0.01

Params = list[jax.Array]


def network() -> Params:
    """Return the weights of a deep network."""
    rng = np.random.default_rng(SEED)
    shapes = [(WIDTH, WIDTH)] * DEPTH
    return list(jax.device_put([rng.normal(0, WIDTH**-0.5, shape).astype("f") for shape in shapes]))


def loss(params: Params, x: jax.Array) -> jax.Array:
    drawn = x
    for weights in params:
        drawn = drawn + jax.nn.gelu(drawn @ weights)
    return jnp.mean(jnp.square(drawn - x))


@jax.jit
def step(params: Params, x: jax.Array) -> tuple[Params, jax.Array]:
    value, slope = jax.value_and_grad(loss)(params, x)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], value


def train(seconds: float, steps: int) -> None:
    params = network()
    x = jax.device_put(np.ones((BATCH, WIDTH), np.float32))
    done, began = -WARM_UP, time.perf_counter()
    while done < min(steps, MOST) and (done < 0 or time.perf_counter() - began < seconds):
        with jax.profiler.StepTraceAnnotation("train", step_num=done):
            params, value = step(params, x)
            value.block_until_ready()
        done += 1
        if done == 0:
            began = time.perf_counter()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
