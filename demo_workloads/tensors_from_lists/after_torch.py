"""Forecast the next reading of some sensors from the last ones of each.

Run: python demo_workloads/tensors_from_lists/after_torch.py --seconds 20
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

SEED = 1
SENSORS, READINGS, LAST, HIDDEN = 64, 4_000, 96, 256
BATCH = 128
WARM_UP = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(LAST, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, 1),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    chance = np.random.default_rng(SEED)
    readings = chance.standard_normal((SENSORS, READINGS), dtype=np.float32)
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        drawn = zip(
            chance.integers(SENSORS, size=BATCH).tolist(),
            chance.integers(READINGS - LAST, size=BATCH).tolist(),
            strict=True,
        )
        windows = [readings[which, at : at + LAST + 1] for which, at in drawn]
        batch = torch.from_numpy(np.stack(windows)).to(DEVICE)
        loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, -1:])
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
