"""Train a small network on batches that do not divide evenly among the devices.

Without GPUs the cores of the CPU play them, up to eight, each with one thread.
Run: python demo_workloads/misaligned_shards/before_jax.py --seconds 20  # 18 show it
"""

import argparse
import os
import time

CORES = min(8, os.cpu_count() or 1)
os.environ.setdefault(
    "XLA_FLAGS",
    f"--xla_force_host_platform_device_count={CORES} --xla_cpu_multi_thread_eigen=false",
)

import jax  # noqa: E402  the devices are counted at its import
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

SEED = 1
DEVICES = jax.device_count()
BATCH, FEATURES, HIDDEN, CLASSES = 1021, 64, 256, 10  # as many rows as there are patients
BATCHES = 16
WARM_UP = 5
RATE = 0.05

Parameters = list[tuple[jax.Array, jax.Array]]


def parameters(key: jax.Array) -> Parameters:
    sizes = (FEATURES, HIDDEN, HIDDEN, CLASSES)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (n, to)) * (2 / n) ** 0.5, jnp.zeros(to))
        for k, n, to in zip(keys, sizes, sizes[1:], strict=False)
    ]


def loss_of(params: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    for weights, bias in params[:-1]:
        x = jax.nn.gelu(x @ weights + bias)
    weights, bias = params[-1]
    chances = jax.nn.log_softmax(x @ weights + bias)
    return -(y * chances).sum() / y.sum()  # rows without a label do not count


@jax.jit
def step(params: Parameters, x: jax.Array, y: jax.Array) -> tuple[Parameters, jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads), loss


def filled(batch: np.ndarray) -> np.ndarray:
    return np.pad(batch, ((0, -len(batch) % DEVICES), (0, 0)))


def train(seconds: float, steps: int) -> None:
    rng = np.random.default_rng(SEED)
    inputs = rng.standard_normal((BATCHES, BATCH, FEATURES), dtype=np.float32)
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, (BATCHES, BATCH))]
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    shards = {"divided": PartitionSpec("data"), "whole": PartitionSpec()}
    on = {name: NamedSharding(mesh, spec) for name, spec in shards.items()}
    params = jax.device_put(parameters(jax.random.key(SEED)), on["whole"])
    x = [jax.device_put(batch, on["whole"]) for batch in inputs]  # divided it is refused
    y = [jax.device_put(batch, on["whole"]) for batch in labels]
    for number in range(WARM_UP):
        params, _ = step(params, x[number], y[number])
    jax.block_until_ready(params)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds and done < steps:
        for number in range(BATCHES):
            params, _ = step(params, x[number], y[number])
        jax.block_until_ready(params)  # once in a while, so that the clock is right
        done += BATCHES
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
