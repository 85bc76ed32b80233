"""Train an autoencoder on pictures, and look at how well it draws them.

Run: python demo_workloads/large_readback/after_torch.py --seconds 20
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

SEED = 1
PIXELS, HIDDEN = 2_048, 32
BATCH = 192
WARM_UP = 10
LOOK_EVERY = 100
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(PIXELS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, PIXELS)
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pictures = np.random.default_rng(SEED).standard_normal((BATCH, PIXELS), dtype=np.float32)
    x, worst = torch.from_numpy(pictures).to(DEVICE), [0.0]
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        drawn = model(x)
        loss = nn.functional.mse_loss(drawn, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % LOOK_EVERY == 0:
            worst.append(np.median(np.abs(drawn.detach().cpu().numpy() - pictures), axis=1).max())
        if done == 0:
            began = time.perf_counter()
        if done % LOOK_EVERY == 0:
            print(f"{done}: the worst picture is off by {worst[-1]:.3f}")
            worst = worst[-1:]
    _, took = next(model.parameters()).sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
