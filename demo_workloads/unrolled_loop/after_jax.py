"""Train a recurrent network to foretell a wave, one moment after the other.

The clock begins before the first step: compiling is a part of what this pair shows.

Run: python demo_workloads/unrolled_loop/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
WIDTH, MOMENTS = 64, 16
BATCH = 16
RATE = 0.05
Params = dict[str, jax.Array]


def cell(params: Params, hidden: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jnp.tanh(hidden @ params["hidden"] + x @ params["in"])
    return hidden, hidden @ params["out"]


def written_out(params: Params, hidden: jax.Array, xs: jax.Array) -> jax.Array:
    outputs = []
    for t in range(len(xs)):
        hidden, y = cell(params, hidden, xs[t])
        outputs.append(y)
    return jnp.stack(outputs)


def scanned(params: Params, hidden: jax.Array, xs: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda hidden, x: cell(params, hidden, x), hidden, xs)[1]


def loss(params: Params, wave: jax.Array) -> jax.Array:
    outputs = scanned(params, jnp.zeros((BATCH, WIDTH)), wave[:-1])
    return ((outputs - wave[1:]) ** 2).mean()


@jax.jit
def step(params: Params, wave: jax.Array) -> tuple[Params, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, wave)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), value


def parameters(random: np.random.Generator) -> Params:
    shapes = {"hidden": (WIDTH, WIDTH), "in": (1, WIDTH), "out": (WIDTH, 1)}
    return {
        name: jnp.asarray(random.standard_normal(shape, np.float32) * 0.5 * shape[0] ** -0.5)
        for name, shape in shapes.items()
    }


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    params = parameters(random)
    done, began = 0, time.perf_counter()
    while True:
        phase = random.uniform(0, 6, (BATCH, 1))
        wave = np.sin(0.1 * np.arange(MOMENTS + 1)[:, None, None] + phase).astype(np.float32)
        params, value = step(params, wave)
        value.block_until_ready()
        done += 1
        if done == steps or time.perf_counter() - began > seconds:
            break
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
