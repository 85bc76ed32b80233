"""Train a small network that reads one sample after the other.

Run: python demo_workloads/python_loop_over_batch/before_torch.py --seconds 20
"""

import argparse
import time

import torch
from torch import nn

SEED = 1
FEATURES, WIDTH, CLASSES = 64, 256, 10
BATCH = 32
WARM_UP = 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def loss_one_by_one(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    losses = [nn.functional.cross_entropy(model(x[i]), y[i]) for i in range(len(x))]
    return torch.stack(losses).mean()


def loss_of_batch(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        nn.Linear(WIDTH, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done, began = -WARM_UP, time.perf_counter()
    while True:
        x = torch.randn(BATCH, FEATURES, device=DEVICE)
        y = torch.randint(CLASSES, (BATCH,), device=DEVICE)
        loss = loss_one_by_one(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done == steps or (done > 0 and time.perf_counter() - began > seconds):
            break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
