"""Train a network that is large for its steps, and save it again and again.

Run: python demo_workloads/checkpoint_blocks/after_torch.py --seconds 20
"""

import argparse
import os
import shutil
import tempfile
import time
from itertools import count
from pathlib import Path

import torch
from torch import nn

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 256, 2048, 10
BATCH = 32
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    )  # fmt: skip


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = torch.randint(CLASSES, (SAMPLES,), device=DEVICE)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    folder = Path(tempfile.mkdtemp())
    path = folder / "latest.pt"
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,))
        loss = nn.functional.cross_entropy(model(data[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == -1:
            torch.save(model.state_dict(), path)
            os.sync()
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    shutil.rmtree(folder)
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
