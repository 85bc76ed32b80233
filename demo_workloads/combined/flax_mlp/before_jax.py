"""Train an MLP as Flax has it: a model with init and apply, and a state that takes the gradients.

Run: python demo_workloads/combined/flax_mlp/before_jax.py --seconds 20

Faults: unjitted_step, host_random_numbers

It needs no Flax: what is slow is around the model, and plain JAX. The host draws the noise, and
the step is not compiled.
"""

import argparse
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
SAMPLES, FEATURES, LAYERS, CLASSES = 8_192, 784, 3, 10
BATCH, WIDTH = 512, 5120 if jax.default_backend() == "gpu" else 64
NOISE = 0.1
RATE, MOMENTUM = 0.05, 0.9
WARM_UP = 5
Params = dict[str, dict[str, jax.Array]]
Data = np.ndarray | jax.Array


class MLP:
    """Dense layers with a ReLU between two of them."""

    sizes = (FEATURES, *[WIDTH] * LAYERS, CLASSES)

    def init(self, key: jax.Array) -> Params:
        keys = jax.random.split(key, len(self.sizes) - 1)
        return {
            f"Dense_{i}": {"kernel": jax.random.normal(keys[i], size) * size[0] ** -0.5,
                           "bias": jnp.zeros(size[1])}
            for i, size in enumerate(pairwise(self.sizes))
        }  # fmt: skip

    def apply(self, params: Params, x: Data) -> Data:
        for i in range(LAYERS):
            x = jax.nn.relu(x @ params[f"Dense_{i}"]["kernel"] + params[f"Dense_{i}"]["bias"])
        return x @ params[f"Dense_{LAYERS}"]["kernel"] + params[f"Dense_{LAYERS}"]["bias"]


class TrainState(NamedTuple):
    params: Params
    speed: Params

    def apply_gradients(self, gradient: Params) -> "TrainState":
        speed = jax.tree.map(lambda v, g: MOMENTUM * v + g, self.speed, gradient)
        return TrainState(jax.tree.map(lambda p, v: p - RATE * v, self.params, speed), speed)


def train_step(state: TrainState, x: Data, y: Data) -> tuple[TrainState, jax.Array]:
    def loss(params: Params) -> jax.Array:
        chances = jax.nn.log_softmax(MLP().apply(params, x))
        return -jnp.take_along_axis(chances, y[:, None], axis=1).mean()

    value, gradient = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(gradient), value


@jax.jit
def noisy(key: jax.Array, x: jax.Array) -> jax.Array:
    return x + NOISE * jax.random.normal(key, x.shape)


def data() -> list[tuple[Data, Data]]:
    random = np.random.default_rng(SEED)
    x = random.standard_normal((SAMPLES, FEATURES), np.float32)
    y = x[:, :CLASSES].argmax(1)
    return [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, SAMPLES, BATCH)]


def batches() -> Iterator[tuple[Data, Data]]:
    kept = jax.device_put(data())
    while True:
        yield from kept


def train(seconds: float, steps: int) -> None:
    np.random.seed(SEED)
    key = jax.random.key(SEED)
    params = MLP().init(key)
    state = TrainState(params, jax.tree.map(jnp.zeros_like, params))
    step = train_step
    done, began = -WARM_UP, time.perf_counter()
    for x, y in batches():
        seen = x + NOISE * np.random.normal(size=x.shape).astype(np.float32)
        state, value = step(state, seen, y)
        value.block_until_ready()
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
