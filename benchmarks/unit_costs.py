"""What the constants of some rules stand on: costs of single things, apart from the demo pairs.

A page of memory that is new, a random number by who draws it, a number of a list that becomes a
part of a tensor, samples of a deque beside those of a list, a step after a full collection of
Python's garbage beside one without, a step of an optimizer by how it goes through its tensors, a
small array handed to JAX. Each is the middle of several tries, in CPU time: that is what other
programs on the machine lengthen least. Only steps of JAX after collections are in elapsed time: its
threads, which have slept meanwhile, come late.

Run: .venv/bin/python benchmarks/unit_costs.py [--json]
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import random
import statistics
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

PAGE = 4096
NUMBERS = 400_000
TRIES = 9
# Records of samples, as many data sets keep them, and the width of the network.
COLLECTED = ((20_000, 1024), (20_000, 256), (100_000, 512))
ROWS, FEATURES, CLASSES = 256, 256, 10
# As long as a collection of that many records; and widths of a network of three layers.
BUSY_S = 0.03
WIDTHS = (256, 512, 1024, 2048)
OPTIMIZERS = {
    "AdamW": {"lr": 1e-3}, "Adam": {"lr": 1e-3}, "Adagrad": {"lr": 1e-3}, "SGD": {"lr": 1e-3},
    "SGD momentum": {"lr": 1e-3, "momentum": 0.9},
}  # fmt: skip
# How many, and the numbers in each.
TENSORS = ((400, 64), (400, 1024), (200, 16_384), (40, 262_144))


def seconds(work: Callable[[], object], tries: int = TRIES) -> float:
    """Return the CPU time that it takes, the first time left out."""
    work()
    taken = []
    for _ in range(tries):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def page_us(mib: int) -> float:
    """Return what a page takes that is new, beyond writing to one that is there."""
    count = mib * 2**20 // 4
    kept = torch.empty(count)
    new = seconds(lambda: torch.zeros(count))
    return 1e6 * (new - seconds(kept.zero_)) / (mib * 2**20 / PAGE)


def numbers_ns() -> dict[str, float]:
    """Return what one random number takes, by who draws it."""
    generator, key = np.random.default_rng(1), jax.random.key(1)
    drawn = jax.jit(lambda key: jax.random.normal(key, (NUMBERS,)))
    masks = jax.jit(lambda key: jax.random.bernoulli(key, 0.7, (NUMBERS,)))
    ways: dict[str, Callable[[], object]] = {
        "random.random in a list": lambda: [random.random() < 0.5 for _ in range(NUMBERS)],
        "random.gauss in a list": lambda: [random.gauss(0, 1) for _ in range(NUMBERS)],
        "np.random.normal": lambda: np.random.normal(size=NUMBERS),
        "default_rng().standard_normal": lambda: generator.standard_normal(NUMBERS, np.float32),
        "torch.randn": lambda: torch.randn(NUMBERS),
        "jax.random.normal": lambda: drawn(key).block_until_ready(),
        "jax.random.bernoulli": lambda: masks(key).block_until_ready(),
    }
    return {name: 1e9 * seconds(draw) / NUMBERS for name, draw in ways.items()}


def lists_ns() -> dict[str, float]:
    """Return what one number takes to become a part of a tensor, by what it comes from."""
    rows = np.random.default_rng(1).standard_normal((NUMBERS // 1000, 1000), np.float32)
    lists, arrays = rows.tolist(), list(rows)
    ways: dict[str, Callable[[], object]] = {
        "torch.tensor of lists": lambda: torch.tensor(lists),
        "torch.tensor of a list of arrays": lambda: torch.tensor(arrays),
        "np.asarray of lists first": lambda: torch.from_numpy(np.asarray(lists, np.float32)),
        "np.stack of arrays first": lambda: torch.from_numpy(np.stack(arrays)),
        "torch.tensor of an array": lambda: torch.tensor(rows),
        "jnp.array of lists": lambda: jnp.array(lists).block_until_ready(),
        "jnp.array of an array": lambda: jnp.array(rows).block_until_ready(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: 1e9 * seconds(make) / NUMBERS for name, make in ways.items()}


def puts_us() -> dict[str, float]:
    """Return what it takes to give JAX 64 pieces of 4 KiB one by one, and to put them together."""
    pieces = [np.full(1024, number, np.float32) for number in range(64)]
    one_by_one = seconds(lambda: [jax.device_put(piece) for piece in pieces])
    at_once = seconds(lambda: jax.device_put(np.stack(pieces)))
    return {"each of 64": 1e6 * one_by_one / 64, "stacked, all of 64": 1e6 * at_once}


def after_collecting(samples: int, width: int) -> dict[str, float]:
    """Return how much longer a step takes right after a full collection."""
    records = [{"path": f"{i}.jpg", "label": i % 10, "box": [0, 0, i, 480]} for i in range(samples)]
    model = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width))
    optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(ROWS, FEATURES)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    taken: dict[bool, list[float]] = {True: [], False: []}
    pauses: list[float] = []
    for number in range(16 * TRIES):
        collects = number // 8 % 2 == 0
        if collects:
            began = time.process_time()
            gc.collect()
            pauses.append(time.process_time() - began)
        began = time.process_time()
        step()
        taken[collects].append(time.process_time() - began)
    assert len(records) == samples
    cold, warm, pause = (statistics.median(some) for some in (taken[True], taken[False], pauses))
    return {"times": round(cold / warm, 2), "of_the_collection": round((cold - warm) / pause, 3)}


def jax_after_collecting(samples: int, width: int) -> dict[str, float]:
    """Return how much longer each step of JAX takes, all of its threads, where all collect."""
    records = [{"path": f"{i}.jpg", "label": i % 10, "box": [0, 0, i, 480]} for i in range(samples)]
    key = jax.random.key(1)
    sizes = ((FEATURES, width), (width, width), (width, CLASSES))
    weights = [jax.random.normal(key, size) / width for size in sizes]
    data = np.random.default_rng(1).standard_normal((samples, FEATURES), np.float32)

    @jax.jit
    def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        def loss(weights: list[jax.Array]) -> jax.Array:
            hidden = jax.nn.gelu(jax.nn.gelu(x @ weights[0]) @ weights[1])
            return jax.nn.log_softmax(hidden @ weights[2]).mean()

        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, jax.grad(loss)(weights))

    taken: dict[bool, list[float]] = {True: [], False: []}
    for collects in (True, False):
        for number in range(8 * TRIES):
            if collects:
                gc.collect()
            began = time.perf_counter()
            x = data[(number * ROWS) % (samples - ROWS) :][:ROWS]
            weights = jax.block_until_ready(step(weights, x))
            taken[collects].append(time.perf_counter() - began)
    assert len(records) == samples
    late, soon = statistics.median(taken[True]), statistics.median(taken[False])
    return {"times": round(late / soon, 2), "ms": round(1e3 * soon, 2)}


def optimizer_times() -> dict[str, dict[str, float]]:
    """Return how many times as long a step takes tensor by tensor, as in the other two ways."""
    found = {}
    for name, more in OPTIMIZERS.items():
        kind = getattr(torch.optim, name.partition(" ")[0])
        for number, size in TENSORS:
            taken = {}
            for way in ("foreach=False", "foreach=True", "fused=True"):
                key, _, value = way.partition("=")
                tensors = [nn.Parameter(torch.randn(size)) for _ in range(number)]
                for each in tensors:
                    each.grad = torch.randn(size)
                taken[way] = seconds(kind(tensors, **more, **{key: value == "True"}).step)
            loop = taken.pop("foreach=False")
            times = {way: round(loop / took, 2) for way, took in taken.items()}
            found[f"{name}, {number} tensors of {size}"] = times
    return found


def of_a_list() -> dict[str, float]:
    """Return what part of drawing 128 samples of a deque a list of as many places gives back."""
    found = {}
    for places in (1_000, 10_000, 50_000, 100_000, 1_000_000):
        rows = [(n, n + 1) for n in range(places)]
        memory = collections.deque(rows)
        slow, fast = (
            seconds(lambda kept=kept: [random.sample(kept, 128) for _ in range(20)])
            for kept in (memory, rows)
        )
        found[f"{places} places"] = round(1 - fast / slow, 2)
    return found


def main() -> None:
    """Print them."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--json", action="store_true")
    torch.set_num_threads(1)
    result = {
        "new_page_us": {f"{mib} MiB": round(page_us(mib), 2) for mib in (48, 64, 128)},
        "random_number_ns": {name: round(ns, 1) for name, ns in numbers_ns().items()},
        "number_of_a_list_ns": {name: round(ns, 1) for name, ns in lists_ns().items()},
        "given_back_by_a_list_for_a_deque": of_a_list(),
        "device_put_us": {name: round(us, 1) for name, us in puts_us().items()},
        "step_after_collecting": {
            f"{samples} records, {width} wide": after_collecting(samples, width)
            for samples, width in COLLECTED
        },
        "step_of_jax_after_collecting": {
            f"{samples} records, {width} wide": jax_after_collecting(samples, width)
            for samples, width in COLLECTED
        },
        "step_of_an_optimizer_in_a_loop_times": optimizer_times(),
    }
    if asked.parse_args().json:
        print(json.dumps(result))
        return
    for name, figures in result.items():
        print(name)
        for what, value in figures.items():
            print(f"  {what}: {value}")


if __name__ == "__main__":
    main()
