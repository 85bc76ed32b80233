"""Train a small network over many short epochs, with batches from a worker process.

Run: python demo_workloads/restarted_workers/before_torch.py --seconds 20

Faults: input_starved
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 1
BATCHES, FEATURES, HIDDEN = 12, 256, 1024
BATCH, WORKERS = 64, 1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, FEATURES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(BATCHES, BATCH, FEATURES))  # a batch each
    loader = DataLoader(data, None, shuffle=True, num_workers=WORKERS)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds and done < steps:
        for (x,) in loader:
            loss = nn.functional.mse_loss(model(x.to(DEVICE)), x.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == steps or time.perf_counter() - began > seconds:
                break
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
