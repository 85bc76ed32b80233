"""Train on images that the host holds: each batch is copied to the device.

Run: python benchmarks/gpu/pairs/pageable_copies/after_torch.py --seconds 20
"""

import argparse
import time
from collections.abc import Callable
from itertools import cycle

import torch
from torch import nn

SEED = 1
WARM, LOOK_EVERY = 5, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCHES, BATCH, SIZE, CLASSES = (48, 256, 160, 10) if DEVICE == "cuda" else (4, 8, 32, 10)


def training() -> Callable[[], None]:
    torch.manual_seed(SEED)
    images = torch.randn(BATCHES, BATCH, 3, SIZE, SIZE).pin_memory()
    labels = torch.randint(CLASSES, (BATCH,), device=DEVICE)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches, done = cycle(images), 0

    def step() -> None:
        nonlocal done
        x = next(batches).to(DEVICE, non_blocking=True)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % LOOK_EVERY == 0:
            print(f"loss {loss.item():.3f}")

    return step


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def train(seconds: float, steps: int) -> None:
    step = training()
    done, began = -WARM, time.perf_counter()
    while done < steps and (done <= 0 or time.perf_counter() - began < seconds):
        step()
        done += 1
        if done == 0:
            wait()
            began = time.perf_counter()
    wait()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
