"""Train a small network on batches that are read from slow storage.

Run: python demo_workloads/input_starved/after_jax.py --seconds 20
"""

import argparse
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 8_192, 128, 256, 10
BATCH = 64
WARM_UP = 10
RATE = 0.05
WORKERS, AHEAD = 2, 4  # they wait for the disk: one core is enough for both
READ_SECONDS = 0.010  # one batch from a network disk

Params = list[jax.Array]
Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]


class Stored:
    """Samples that lie somewhere far away."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED)
        self.data = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        self.labels = np.argmax(self.data[:, :CLASSES], axis=1).astype(np.int32)

    def read(self, rows: npt.NDArray[np.int64]) -> Batch:
        time.sleep(READ_SECONDS)  # the network, not the CPU
        return self.data[rows], self.labels[rows]


def orders() -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of each batch, epoch after epoch."""
    rng = np.random.default_rng(SEED)
    while True:
        yield from rng.permutation(SAMPLES).reshape(-1, BATCH)


def batches(stored: Stored) -> Iterator[Batch]:
    with ThreadPoolExecutor(WORKERS) as pool:
        ahead: deque[Future[Batch]] = deque()
        for rows in orders():
            ahead.append(pool.submit(stored.read, rows))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()


def network() -> Params:
    """Return the weights of a network with one hidden layer."""
    rng = np.random.default_rng(SEED)
    into = rng.standard_normal((FEATURES, HIDDEN), dtype=np.float32) * FEATURES**-0.5
    out = rng.standard_normal((HIDDEN, CLASSES), dtype=np.float32) * HIDDEN**-0.5
    return list(jax.device_put([into, np.zeros(HIDDEN, np.float32), out]))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    into, bias, out = params
    logits = jax.nn.relu(x @ into + bias) @ out
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


@jax.jit
def step(params: Params, x: jax.Array, y: jax.Array) -> Params:
    slope = jax.grad(loss)(params, x, y)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)]


def train(seconds: float, steps: int) -> None:
    params = network()
    done, began = -WARM_UP, time.perf_counter()
    for x, y in batches(Stored()):
        params = step(params, x, y)
        done += 1
        if done == 0:
            params[0].block_until_ready()
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    params[0].block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
