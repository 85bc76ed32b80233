"""Train a small network, and go through the whole validation set every 200 steps.

Run: python demo_workloads/validation_too_long/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SAMPLES, HELD_OUT, FEATURES, HIDDEN, CLASSES = 20_000, 12_800, 256, 512, 10
BATCH = 256
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    )  # fmt: skip


def score(model: nn.Module, data: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    hits = 0
    with torch.no_grad():
        for first in range(0, len(data), BATCH):
            guessed = model(data[first : first + BATCH]).argmax(1)
            hits += (guessed == labels[first : first + BATCH]).sum()
    model.train()
    return float(hits) / len(data)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = torch.randint(CLASSES, (SAMPLES,), device=DEVICE)
    held_out = torch.randn(HELD_OUT, FEATURES, device=DEVICE)
    right = torch.randint(CLASSES, (HELD_OUT,), device=DEVICE)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    done, took, best, began = 0, 0.0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,))
        loss = nn.functional.cross_entropy(model(data[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            best = max(best, score(model, held_out, right))
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"best score: {best:.3f}")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
