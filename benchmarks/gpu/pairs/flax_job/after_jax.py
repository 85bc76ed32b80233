"""Train a Flax model as its guide begins: batches of the host, and a step of single operations.

Run: python benchmarks/gpu/pairs/flax_job/after_jax.py --seconds 20

Faults: unjitted_step, host_resident_data
"""

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

SEED = 1
WARM, LOOK_EVERY = 5, 20
ON_GPU = jax.default_backend() == "gpu"
BATCHES, BATCH, FEATURES, CLASSES = 16, 1024, 784, 10
WIDTH, LAYERS = (4096, 4) if ON_GPU else (64, 4)


class MLP(nn.Module):
    """Dense layers with a ReLU between two of them."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(LAYERS):
            x = nn.relu(nn.Dense(WIDTH)(x))
        return nn.Dense(CLASSES)(x)


def train_step(state: TrainState, batch: Any) -> tuple[TrainState, jax.Array]:
    x, y = batch

    def loss(params: Any) -> jax.Array:
        logits = state.apply_fn({"params": params}, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    value, gradient = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradient), value


def training() -> tuple[TrainState, Iterator[Any], Callable[..., Any]]:
    random = np.random.default_rng(SEED)
    x = random.standard_normal((BATCHES, BATCH, FEATURES), np.float32)
    y = x[..., :CLASSES].argmax(2)
    data = jax.device_put(list(zip(x, y, strict=True)))
    model = MLP()
    params = model.init(jax.random.key(SEED), jnp.ones((1, FEATURES)))["params"]
    rule = optax.sgd(0.05, momentum=0.9)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=rule)
    return state, cycle(data), jax.jit(train_step, donate_argnums=0)


def train(seconds: float, steps: int) -> None:
    state, batches, step = training()
    done, began = -WARM, time.perf_counter()
    while done < steps and (done <= 0 or time.perf_counter() - began < seconds):
        state, loss = step(state, next(batches))
        done += 1
        if done % LOOK_EVERY == 0:
            print(f"loss {float(loss):.3f}")
        if done == 0:
            began = time.perf_counter()
    jax.block_until_ready(state)
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
