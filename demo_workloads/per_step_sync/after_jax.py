"""Train a small network on what the sensors of a machine say while it runs.

Run: python demo_workloads/per_step_sync/after_jax.py --seconds 20
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

SEED = 1
MOMENTS, SENSORS, HIDDEN, KINDS = 32, 24, 640, 8
BATCH = 256
WARM_UP = 10
LOG_EVERY = 100
RATE = 0.02
ANSWER_SECONDS = 0.002  # the sensors, when they are asked

Params = list[jax.Array]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Machine:
    """It is asked again and again, and answers in its own time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.said = self.rng.standard_normal((BATCH, MOMENTS, SENSORS), dtype=np.float32)
        self.kinds = np.argmax(self.said[:, -1, :KINDS], axis=1).astype(np.int32)

    def ask(self) -> tuple[Floats, Ints]:
        time.sleep(ANSWER_SECONDS)
        self.said[:, :, 0] += 0.01
        return self.said.copy(), self.kinds


def network() -> Params:
    """Return the weights of a network with one hidden layer."""
    rng = np.random.default_rng(SEED)
    shapes = (MOMENTS * SENSORS, HIDDEN), (HIDDEN, KINDS)
    return list(jax.device_put([rng.normal(0, n**-0.5, (n, m)).astype("f") for n, m in shapes]))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    into, out = params
    logits = jax.nn.relu(x.reshape(len(x), -1) @ into) @ out
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


@jax.jit
def step(params: Params, x: jax.Array, y: jax.Array) -> tuple[Params, jax.Array]:
    value, slope = jax.value_and_grad(loss)(params, x, y)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], value


def train(seconds: float, steps: int) -> None:
    machine, params, total = Machine(), network(), 0.0
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        params, value = step(params, *machine.ask())
        total += value
        done += 1
        if done == 0:
            params[0].block_until_ready()
            began = time.perf_counter()
        if done % LOG_EVERY == 0:
            print(f"{done}: loss {float(total) / LOG_EVERY:.3f}")
            total = 0.0
    params[0].block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
