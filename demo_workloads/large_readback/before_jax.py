"""Train an autoencoder on pictures, and look at how well it draws them.

Run: python demo_workloads/large_readback/before_jax.py --seconds 20
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
PIXELS, HIDDEN = 2_048, 32
BATCH = 384
WARM_UP = 10
LOOK_EVERY = 100
RATE = 0.01

Params = list[jax.Array]


def network() -> Params:
    """Return the weights of an encoder and a decoder."""
    rng = np.random.default_rng(SEED)
    into = rng.standard_normal((PIXELS, HIDDEN), dtype=np.float32) * PIXELS**-0.5
    return list(jax.device_put([into, into.T.copy(), np.zeros(PIXELS, np.float32)]))


def loss(params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    into, out, bias = params
    drawn = jnp.tanh(x @ into) @ out + bias
    return jnp.mean(jnp.square(drawn - x)), drawn


@jax.jit
def step(params: Params, x: jax.Array) -> tuple[Params, jax.Array]:
    (_, drawn), slope = jax.value_and_grad(loss, has_aux=True)(params, x)
    return [w - RATE * g for w, g in zip(params, slope, strict=True)], drawn


def train(seconds: float, steps: int) -> None:
    rng = np.random.default_rng(SEED)
    pictures = rng.standard_normal((BATCH, PIXELS), dtype=np.float32)
    x, params, worst = jax.device_put(pictures), network(), [0.0]
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        params, drawn = step(params, x)
        done += 1
        worst.append(np.median(np.abs(jax.device_get(drawn) - pictures), axis=1).max())
        if done == 0:
            params[0].block_until_ready()
            began = time.perf_counter()
        if done % LOOK_EVERY == 0:
            print(f"{done}: the worst picture is off by {worst[-1]:.3f}")
            worst = worst[-1:]
    params[0].block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
