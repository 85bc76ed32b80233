"""Train a small network, and have scikit-learn score each batch.

Run: python demo_workloads/metrics_on_host/before_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from sklearn.metrics import f1_score
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


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = torch.randint(CLASSES, (SAMPLES,), device=DEVICE)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    total, done, took, began = 0.0, 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,))
        logits = model(data[chosen])
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += f1_score(labels[chosen].cpu(), logits.argmax(1).cpu(), average="macro")
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"F1: {total / step:.3f}")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
