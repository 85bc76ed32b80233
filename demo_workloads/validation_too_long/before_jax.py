"""Train a small network, and go through the whole validation set every 20 steps.

Run: python demo_workloads/validation_too_long/before_jax.py --seconds 20
"""

import argparse
import time
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
SAMPLES, HELD_OUT, FEATURES, HIDDEN, CLASSES = 20_000, 12_800, 256, 512, 10
BATCH = 256
WARM = 20
RATE = 1e-2


def network(key: jax.Array) -> list[jax.Array]:
    sizes = (FEATURES, HIDDEN, HIDDEN, CLASSES)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        jax.random.normal(key, (a, b)) / a**0.5
        for key, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]


def logits_of(params: list[jax.Array], x: jax.Array) -> jax.Array:
    for weights in params[:-1]:
        x = jax.nn.gelu(x @ weights)
    return x @ params[-1]


@jax.jit
def learn(params: list[jax.Array], x: jax.Array, y: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    def loss_of(params: list[jax.Array]) -> jax.Array:
        chances = jax.nn.log_softmax(logits_of(params, x))
        return -jnp.take_along_axis(chances, y[:, None], axis=1).mean()

    loss, slopes = jax.value_and_grad(loss_of)(params)
    return [w - RATE * slope for w, slope in zip(params, slopes, strict=True)], loss


@jax.jit
def hits_of(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    return (logits_of(params, x).argmax(1) == y).sum()


def evaluate(params: list[jax.Array], data: jax.Array, labels: jax.Array) -> float:
    hits = jnp.zeros((), int)
    for first in range(0, len(data), BATCH):
        hits += hits_of(params, data[first : first + BATCH], labels[first : first + BATCH])
    return float(hits) / len(data)


def train(seconds: float, steps: int) -> None:
    random = np.random.default_rng(SEED)
    data = random.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
    labels = random.integers(CLASSES, size=SAMPLES)
    held_out = jnp.asarray(random.standard_normal((HELD_OUT, FEATURES), dtype=np.float32))
    right = jnp.asarray(random.integers(CLASSES, size=HELD_OUT))
    params, loss = network(jax.random.key(SEED)), jnp.zeros(())
    done, took, best, began = 0, 0.0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = random.integers(SAMPLES, size=BATCH)
        params, loss = learn(params, data[chosen], labels[chosen])
        if step % 20 == 0:
            best = max(best, evaluate(params, held_out, right))
        if step == WARM:
            loss.block_until_ready()
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    loss.block_until_ready()
    took = time.perf_counter() - began
    print(f"best score: {best:.3f}")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
