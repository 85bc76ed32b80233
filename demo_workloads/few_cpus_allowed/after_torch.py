"""Train a small network, beside one worker that makes its samples, on the cores of this rank.

Run: python demo_workloads/few_cpus_allowed/after_torch.py --seconds 20  # 18 show it
"""

import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 4096, 256, 512, 10
BATCH = 64
CORES = sorted(os.sched_getaffinity(0))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Smoothed(Dataset[tuple[torch.Tensor, int]]):
    """Samples that are filtered anew each time."""

    def __init__(self) -> None:
        self.data = torch.randn(SAMPLES, FEATURES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.fft.irfft(torch.fft.rfft(self.data[index]) * 0.5, FEATURES), index % CLASSES


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    os.sched_setaffinity(0, CORES)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Smoothed(), BATCH, num_workers=1, persistent_workers=True)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds and done < steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
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
