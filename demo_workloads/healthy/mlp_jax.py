"""Train a network that is large enough for its device: compiled whole, its data where it computes.

Run: python demo_workloads/healthy/mlp_jax.py --seconds 20
"""

import argparse
import time

import jax
import jax.numpy as jnp

SEED = 1
BATCHES, BATCH, FEATURES, WIDTH, CLASSES = 8, 256, 512, 1024, 10
RATE = 0.05
WARM_UP = 5
LOOK_EVERY = 20
Params = dict[str, jax.Array]


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ params["in"])
    hidden = jax.nn.relu(hidden @ params["middle"])
    chances = jax.nn.log_softmax(hidden @ params["out"])
    return -jnp.take_along_axis(chances, y[:, None], axis=1).mean()


def train_step(params: Params, x: jax.Array, y: jax.Array) -> tuple[Params, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), value


step = jax.jit(train_step, donate_argnums=(0,))


def parameters(key: jax.Array) -> Params:
    shapes = {"in": (FEATURES, WIDTH), "middle": (WIDTH, WIDTH), "out": (WIDTH, CLASSES)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shape) * shape[0] ** -0.5
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def train(seconds: float, steps: int) -> None:
    key = jax.random.key(SEED)
    params = parameters(key)
    inputs = list(jax.random.normal(key, (BATCHES, BATCH, FEATURES)))
    labels = [x[:, :CLASSES].argmax(1) for x in inputs]
    done, began = -WARM_UP, time.perf_counter()
    while True:
        params, value = step(params, inputs[done % BATCHES], labels[done % BATCHES])
        done += 1
        if done == 0:
            value.block_until_ready()
            began = time.perf_counter()
        if done > 0 and done % LOOK_EVERY == 0:
            print(f"loss {value:.3f}")
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    params["in"].block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
