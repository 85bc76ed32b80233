"""Train an autoencoder on pictures, with every picture described by a record, and look at its work.

Run: python demo_workloads/combined/copies_and_gc/before_torch.py --seconds 20  # 18 show it

Faults: gc_pauses, large_readback
"""

import argparse
import gc
import time
from itertools import count

import numpy as np
import torch
from torch import nn

SEED = 1
SAMPLES, PIXELS, HIDDEN = 20_000, 784, 64
BATCH = 512
WARM = 10
LOOK_EVERY = 100
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def describe(index: int) -> dict[str, object]:
    """What many datasets keep of each sample: small objects, and very many of them."""
    return {"path": f"images/{index}.jpg", "box": [0, 0, index % 640, 480]}


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    records = [describe(index) for index in range(SAMPLES)]
    pictures = torch.rand(SAMPLES, PIXELS, device=DEVICE)
    model = nn.Sequential(
        nn.Linear(PIXELS, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, PIXELS),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    worst = []
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        first = BATCH * step % (len(records) - BATCH)
        x = pictures[first : first + BATCH]
        drawn = model(x)
        loss = nn.functional.mse_loss(drawn, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worst.append(np.median(np.abs(drawn.detach().cpu().numpy()), axis=1).max())
        gc.collect()  # to keep the memory small
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
