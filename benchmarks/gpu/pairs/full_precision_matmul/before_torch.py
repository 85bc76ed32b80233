"""Train a transformer's layers, whose products are all in float32.

Run: python benchmarks/gpu/pairs/full_precision_matmul/before_torch.py --seconds 20
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

SEED = 1
WARM, LOOK_EVERY = 5, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH, LAYERS = (32, 512, 1024, 4) if DEVICE == "cuda" else (2, 32, 64, 2)


def training() -> Callable[[], None]:
    torch.manual_seed(SEED)
    layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, LAYERS).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    done = 0

    def step() -> None:
        nonlocal done
        loss = model(x).square().mean()
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
