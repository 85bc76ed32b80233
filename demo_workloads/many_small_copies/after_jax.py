"""Train a small network on a table with many columns, a batch of rows at a time.

Run: python demo_workloads/many_small_copies/after_jax.py --seconds 20  # 18 show it
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

SEED = 1
ROWS, COLUMNS, HIDDEN = 8_192, 64, 2_048
BATCH = 256
WARM_UP = 5
RATE = 0.02

Params = list[jax.Array]
Column = npt.NDArray[np.float32]


def data() -> tuple[dict[str, Column], Column]:
    """Return a table, column by column, and a target that depends on some of them."""
    rng = np.random.default_rng(SEED)
    table = {f"c{n}": rng.standard_normal(ROWS, dtype=np.float32) for n in range(COLUMNS)}
    return table, table["c0"] * table["c1"] + np.abs(table["c2"])


def network() -> Params:
    """Return the weights of a network with one hidden layer."""
    rng = np.random.default_rng(SEED)
    into = rng.standard_normal((COLUMNS, HIDDEN), dtype=np.float32) * COLUMNS**-0.5
    out = rng.standard_normal(HIDDEN, dtype=np.float32) * HIDDEN**-0.5
    return list(jax.device_put([into, np.zeros(HIDDEN, np.float32), out]))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    into, bias, out = params
    return jnp.mean((jnp.tanh(x @ into + bias) @ out - y) ** 2)


@jax.jit
def step(
    params: Params, columns: list[jax.Array] | jax.Array, y: jax.Array
) -> tuple[Params, jax.Array]:
    value, slope = jax.value_and_grad(loss)(params, jnp.stack(columns, axis=1), y)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], value


def train(seconds: float, steps: int) -> None:
    table, target = data()
    params, value = network(), None
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        rows = slice(BATCH * done % ROWS, BATCH * done % ROWS + BATCH)
        columns = jax.device_put(np.stack([column[rows] for column in table.values()]))
        params, value = step(params, columns, jax.device_put(target[rows]))
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
