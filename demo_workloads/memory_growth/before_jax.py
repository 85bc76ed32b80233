"""Train a small network and keep the outputs of each step, to report on them at the end.

The pair is about memory: what is kept for each step stays until the process ends.

Run: python demo_workloads/memory_growth/before_jax.py --seconds 20  # 18 show it
"""

import argparse
import time
from itertools import count

import jax
import jax.numpy as jnp

SEED = 1
FEATURES, HIDDEN, OUTPUTS = 128, 256, 256
BATCH = 128
WARM = 20


def loss_of(params: list[jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    for weight in params[:-1]:
        x = jax.nn.gelu(x @ weight)
    outputs = x @ params[-1]
    return jnp.mean((outputs - 1) ** 2), outputs


@jax.jit
def update(params: list[jax.Array], key: jax.Array) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    x = jax.random.normal(key, (BATCH, FEATURES))
    (loss, outputs), grads = jax.value_and_grad(loss_of, has_aux=True)(params, x)
    return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), loss, outputs


def train(seconds: float, steps: int) -> None:
    keys = jax.random.split(jax.random.key(SEED), 4)
    sizes = [(FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUTPUTS)]
    params = [jax.random.normal(k, s) * 0.05 for k, s in zip(keys, sizes, strict=False)]
    history = []
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        params, loss, outputs = update(params, jax.random.fold_in(keys[3], step))
        history.append(outputs)
        loss.block_until_ready()
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    rate = BATCH * done / took
    mean = sum(float(jnp.mean(kept)) for kept in history[-100:]) / len(history[-100:])
    print(f"{mean:.2f} on average at the end")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {rate:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
