"""Forecast the next reading of some sensors from the last ones of each.

Run: python demo_workloads/tensors_from_lists/before_jax.py --seconds 20
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
SENSORS, READINGS, LAST, HIDDEN = 64, 4_000, 64, 512
BATCH = 64
WARM_UP = 5
RATE = 0.001

Params = list[jax.Array]


def network() -> Params:
    """Return the weights of a network with two hidden layers."""
    rng = np.random.default_rng(SEED)
    sizes = ((LAST, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
    return [jnp.asarray(rng.standard_normal(s, dtype=np.float32) * s[0] ** -0.5) for s in sizes]


def loss(params: Params, batch: jax.Array) -> jax.Array:
    into, middle, out = params
    guess = jnp.tanh(jnp.tanh(batch[:, :-1] @ into) @ middle) @ out
    return jnp.mean((guess - batch[:, -1:]) ** 2)


@jax.jit
def step(params: Params, batch: jax.Array) -> tuple[Params, jax.Array]:
    value, slope = jax.value_and_grad(loss)(params, batch)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], value


def train(seconds: float, steps: int) -> None:
    params, value = network(), None
    chance = np.random.default_rng(SEED)
    readings = chance.standard_normal((SENSORS, READINGS), dtype=np.float32)
    sensors = [row.tolist() for row in readings]
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        drawn = zip(
            chance.integers(SENSORS, size=BATCH).tolist(),
            chance.integers(READINGS - LAST, size=BATCH).tolist(),
            strict=True,
        )
        windows = [sensors[which][at : at + LAST + 1] for which, at in drawn]
        batch = jnp.array(windows)
        params, value = step(params, batch)
        done += 1
        if done == 0:
            params[0].block_until_ready()
            began = time.perf_counter()
    params[0].block_until_ready()
    took = time.perf_counter() - began
    print(f"loss {value:.3f}")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
