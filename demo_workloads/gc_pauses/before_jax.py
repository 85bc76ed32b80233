"""Train a small network with every sample described by a record in memory, and tidy up each step.

Run: python demo_workloads/gc_pauses/before_jax.py --seconds 20
"""

import argparse
import gc
import time
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 256, 1024, 10
BATCH = 256
WARM = 20


def describe(index: int) -> dict[str, object]:
    """What many datasets keep of each sample: small objects, and very many of them."""
    box = [0, 0, index % 640, 480]
    return {"path": f"images/{index}.jpg", "label": index % CLASSES, "box": box}


def loss_of(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for weight in params[:-1]:
        x = jax.nn.gelu(x @ weight)
    chosen = jax.nn.log_softmax(x @ params[-1])
    return -jnp.mean(jnp.take_along_axis(chosen, y[:, None], axis=1))


@jax.jit
def update(
    params: list[jax.Array], x: jax.Array, y: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), loss


def train(seconds: float, steps: int) -> None:
    draw = np.random.default_rng(SEED)
    records = [describe(index) for index in range(SAMPLES)]
    data = draw.standard_normal((SAMPLES, FEATURES), np.float32)
    keys = jax.random.split(jax.random.key(SEED), 3)
    sizes = [(FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)]
    params = [jax.random.normal(k, s) * 0.03 for k, s in zip(keys, sizes, strict=True)]
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = draw.integers(SAMPLES, size=BATCH)
        labels = np.array([records[index]["label"] for index in chosen])
        params, loss = update(params, data[chosen], labels)
        loss.block_until_ready()
        gc.collect()  # to keep the memory small
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    rate = BATCH * done / took
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {rate:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
