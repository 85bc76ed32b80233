"""Train a network that is large enough for its device, on data that lies where it computes.

Run: python demo_workloads/healthy/mlp_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
BATCHES, FEATURES, CLASSES = 8, 512, 10
WARM, LOOK_EVERY = 5, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH = (8192, 4096) if DEVICE == "cuda" else (256, 1024)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    inputs = torch.randn(BATCHES, BATCH, FEATURES, device=DEVICE)
    labels = inputs[..., :CLASSES].argmax(2)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        at = step % BATCHES
        loss = nn.functional.cross_entropy(model(inputs[at]), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % LOOK_EVERY == 0:
            print(f"loss {loss.item():.3f}")
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
