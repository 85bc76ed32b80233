"""Train a small network, and count on the device what its score is made of.

Run: python demo_workloads/metrics_on_host/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 64, 128, 10
BATCH = 256
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    )  # fmt: skip


def f1(seen: torch.Tensor) -> float:
    counted = seen.sum(0) + seen.sum(1)
    return float((2 * seen.diagonal() / counted.clamp(min=1)).mean())


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = torch.randint(CLASSES, (SAMPLES,), device=DEVICE)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    # How often each class was taken for which.
    seen = torch.zeros(CLASSES * CLASSES, dtype=torch.int64, device=DEVICE)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,))
        logits = model(data[chosen])
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pairs = labels[chosen] * CLASSES + logits.argmax(1)
        seen += torch.bincount(pairs, minlength=CLASSES * CLASSES)
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"F1: {f1(seen.view(CLASSES, CLASSES)):.3f}")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
