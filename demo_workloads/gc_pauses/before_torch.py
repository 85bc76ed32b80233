"""Train a small network with every sample described by a record in memory, and tidy up each step.

Run: python demo_workloads/gc_pauses/before_torch.py --seconds 20
"""

import argparse
import gc
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 256, 1024, 10
BATCH = 256
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def describe(index: int) -> dict[str, object]:
    """What many datasets keep of each sample: small objects, and very many of them."""
    return {
        "path": f"images/{index}.jpg",
        "label": index % CLASSES,
        "box": [0, 0, index % 640, 480],
    }


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    records = [describe(index) for index in range(SAMPLES)]
    data = torch.randn(SAMPLES, FEATURES, device=DEVICE)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SAMPLES, (BATCH,)).tolist()
        labels = torch.tensor([records[index]["label"] for index in chosen], device=DEVICE)
        loss = nn.functional.cross_entropy(model(data[chosen]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
