"""Train a network to take noise away from pictures.

Run: python demo_workloads/host_random_numbers/after_torch.py --seconds 20
"""

import argparse
import time

import torch
from torch import nn

SEED = 1
PIXELS, HIDDEN = 784, 48
BATCH = 192
WARM_UP = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(PIXELS, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, PIXELS)
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pictures = torch.rand(BATCH, PIXELS, device=DEVICE)
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        noise = torch.randn(BATCH, PIXELS, device=DEVICE)
        loss = nn.functional.mse_loss(model(pictures + noise), pictures)
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
