"""Train a small MLP in plain NumPy whose batches come from slow storage.

Run: python demo_workloads/first_look/train_numpy.py --seconds 12
"""

import argparse
import os
import time
from collections.abc import Iterator

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # waiting helper threads would spin
import numpy as np
from numpy.typing import NDArray

SEED = 1
BATCH = 512
FEATURES, HIDDEN, CLASSES = 64, 256, 10
LEARNING_RATE = 0.1
READ_SECONDS = 0.030  # one read from a network disk

Floats = NDArray[np.float32]
Batch = tuple[Floats, NDArray[np.intp]]


def batches(rng: np.random.Generator) -> Iterator[Batch]:
    """Read one batch after the other, for ever."""
    truth = rng.standard_normal((FEATURES, CLASSES), dtype=np.float32)
    while True:
        time.sleep(READ_SECONDS)  # nothing is computed meanwhile
        x = rng.standard_normal((BATCH, FEATURES), dtype=np.float32)
        yield x, (x @ truth).argmax(axis=1)


def step(weights: list[Floats], x: Floats, y: NDArray[np.intp]) -> float:
    """Run forward, backward and update in place; return the loss."""
    first, second = weights
    hidden = np.maximum(x @ first, 0)
    logits = hidden @ second
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(BATCH)
    loss = -np.log(odds[rows, y] + 1e-9).mean()

    odds[rows, y] -= 1  # now the gradient of the logits
    odds /= BATCH
    back = (odds @ second.T) * (hidden > 0)
    second -= LEARNING_RATE * (hidden.T @ odds)
    first -= LEARNING_RATE * (x.T @ back)
    return float(loss)


def train(seconds: float) -> None:
    rng = np.random.default_rng(SEED)
    sizes = ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
    weights = [rng.standard_normal(s, dtype=np.float32) / np.float32(s[0] ** 0.5) for s in sizes]

    start = said = time.monotonic()
    said_step = 0
    for number, (x, y) in enumerate(batches(rng), start=1):
        loss = step(weights, x, y)
        now = time.monotonic()
        if now - said >= 1:
            rate = (number - said_step) / (now - said)
            print(f"step {number:5d}  loss {loss:.4f}  {rate:.1f} steps/s", flush=True)
            said, said_step = now, number
        if now - start >= seconds:
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12, help="how long to train")
    train(parser.parse_args().seconds)
