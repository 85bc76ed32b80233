"""Train a small network and add up the loss to report its mean, with everything that led to it.

The pair is about memory: what is kept for each step stays until the process ends.

Run: python demo_workloads/memory_growth/after_torch.py --seconds 20  # 18 show it
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 8192, 128, 256, 10
BATCH = 64
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = data[:, :CLASSES].argmax(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total = torch.zeros((), device=DEVICE)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,), device=DEVICE)
        outputs = model(data[chosen])
        loss = nn.functional.cross_entropy(outputs, labels[chosen])
        confident = outputs.softmax(1).amax(1).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        total = total + confident.detach()
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{100 * total.item() / step:.0f}% confident on average")
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
