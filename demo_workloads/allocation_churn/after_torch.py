"""Train on sounds of different lengths, padded to the longest into memory that is new each step.

Run: python demo_workloads/allocation_churn/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
SOUNDS, LONGEST, FEATURES, HIDDEN, CLASSES = 256, 1 << 18, 64, 128, 10
BATCH = 64
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    lengths = torch.randint(LONGEST // 16, LONGEST // 8, (SOUNDS,)).tolist()
    sounds = [torch.randn(length, device=DEVICE) for length in lengths]
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES))
    model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    padded = torch.empty(BATCH, LONGEST, device=DEVICE)  # 64 MB
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(SOUNDS, (BATCH,)).tolist()
        padded.zero_()
        for row, index in zip(padded, chosen, strict=True):
            row[: lengths[index]] = sounds[index]
        x = padded.view(BATCH, FEATURES, -1)[:, :, ::64].mean(2)
        loss = nn.functional.cross_entropy(model(x), torch.tensor(chosen, device=DEVICE) % CLASSES)
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
