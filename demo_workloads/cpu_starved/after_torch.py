"""Train a small network with a number of threads that was chosen by hand.

Run: python demo_workloads/cpu_starved/after_torch.py --seconds 20  # 18 show it
"""

import argparse
import os
import time

import torch
from torch import nn

SEED = 1
BATCH, FEATURES, HIDDEN, CLASSES = 256, 256, 512, 10
THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
WARM_UP = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(32, BATCH, FEATURES)
    labels = torch.randint(CLASSES, (32, BATCH))
    done, began = -WARM_UP, time.perf_counter()
    while time.perf_counter() - began < seconds and done < steps:
        x, y = inputs[done % 32].to(DEVICE), labels[done % 32].to(DEVICE)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == 0:
            began = time.perf_counter()
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
