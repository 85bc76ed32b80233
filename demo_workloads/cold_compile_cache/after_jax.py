"""Train a deep network whose step takes long to compile, at the first start alone.

Run: python demo_workloads/cold_compile_cache/after_jax.py --seconds 20  # 40 show it
"""

import argparse
import time
from itertools import count
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1
WIDTH, HEADS, DEPTH, WORDS = 64, 4, 20, 16
BATCH = 8
WARM = 3
RATE = 1e-2

Block = dict[str, jax.Array]


def network() -> list[Block]:
    rng = np.random.default_rng(SEED)
    shapes = {"in": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH),
              "down": (4 * WIDTH, WIDTH)}  # fmt: skip
    return [
        {name: jnp.asarray(rng.normal(0, 0.05, shape), "float32") for name, shape in shapes.items()}
        for _ in range(DEPTH)
    ]


def normal(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def attend(block: Block, x: jax.Array) -> jax.Array:
    parts = (x @ block["in"]).reshape(*x.shape[:2], 3, HEADS, -1)
    query, key, value = parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
    chances = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", chances, value).reshape(x.shape) @ block["out"]


def loss_of(blocks: list[Block], x: jax.Array, y: jax.Array) -> jax.Array:
    for block in blocks:
        x = x + attend(block, normal(x))
        x = x + jax.nn.gelu(normal(x) @ block["up"]) @ block["down"]
    return jnp.mean((x - y) ** 2)


@jax.jit
def learn(blocks: list[Block], x: jax.Array, y: jax.Array) -> tuple[list[Block], jax.Array]:
    loss, slopes = jax.value_and_grad(loss_of)(blocks, x, y)
    return jax.tree.map(lambda w, slope: w - RATE * slope, blocks, slopes), loss


def train(seconds: float, steps: int) -> None:
    # It stays when the job ends. Many machines share one on a disk that all of them see.
    cache = Path.home() / ".cache" / "whyidle" / "demo-jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    started = time.perf_counter()
    rng = np.random.default_rng(SEED)
    data = jnp.asarray(rng.standard_normal((2, BATCH, WORDS, WIDTH)), "float32")
    blocks, loss = network(), jnp.zeros(())
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        blocks, loss = learn(blocks, *data)
        if step == 1:
            loss.block_until_ready()
            print(f"the first step after {time.perf_counter() - started:.1f} s", flush=True)
        if step == WARM:
            loss.block_until_ready()
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and time.perf_counter() - started > seconds):
            break
    loss.block_until_ready()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
