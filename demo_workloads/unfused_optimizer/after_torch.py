"""Train a deep network with AdamW, which updates all tensors in one kernel.

Run: python demo_workloads/unfused_optimizer/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 256, 256, 10
BATCH, LAYERS = 32, 40
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    labels = data[:, :CLASSES].argmax(1)
    hidden = [(nn.Linear(HIDDEN, HIDDEN), nn.GELU()) for _ in range(LAYERS)]
    layers = [layer for pair in hidden for layer in pair]
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), *layers, nn.Linear(HIDDEN, CLASSES))
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,), device=DEVICE)
        loss = nn.functional.cross_entropy(model(data[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
