"""Train a small classifier on images that fit into the device's memory.

Run: python demo_workloads/host_resident_data/before_jax.py --seconds 20  # 18 show it
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

SEED = 1
SAMPLES, PIXELS, HIDDEN, CLASSES = 6_144, 784, 256, 10
BATCH = 256
WARM_UP = 5
RATE = 0.05

Params = list[jax.Array]


def data() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return images, and labels that depend on them."""
    rng = np.random.default_rng(SEED)
    images = rng.standard_normal((SAMPLES, PIXELS), dtype=np.float32)
    labels = np.argmax(images[:, :CLASSES], axis=1).astype(np.int32)
    return images, labels


def network() -> Params:
    """Return the weights of a network with one hidden layer."""
    rng = np.random.default_rng(SEED)
    into = rng.standard_normal((PIXELS, HIDDEN), dtype=np.float32) * PIXELS**-0.5
    out = rng.standard_normal((HIDDEN, CLASSES), dtype=np.float32) * HIDDEN**-0.5
    return list(jax.device_put([into, np.zeros(HIDDEN, np.float32), out]))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    into, bias, out = params
    logits = jax.nn.relu(x @ into + bias) @ out
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


@jax.jit
def step(
    params: Params, images: jax.Array, labels: jax.Array, first: int
) -> tuple[Params, jax.Array]:
    x = jax.lax.dynamic_slice_in_dim(images, first, BATCH)
    y = jax.lax.dynamic_slice_in_dim(labels, first, BATCH)
    value, slope = jax.value_and_grad(loss)(params, x, y)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], value


def train(seconds: float, steps: int) -> None:
    images, labels = data()
    params, value = network(), None
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        params, value = step(params, images, labels, BATCH * done % SAMPLES)
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
