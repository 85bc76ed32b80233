"""Train a small network on samples that are read from slow storage.

Run: python demo_workloads/input_starved/before_torch.py --seconds 20
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 4096, 256, 512, 10
BATCH = 32
READ_SECONDS = 0.001  # one sample from a network disk
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Stored(Dataset[tuple[torch.Tensor, int]]):
    """Samples that lie somewhere far away."""

    def __init__(self) -> None:
        self.data = torch.randn(SAMPLES, FEATURES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(READ_SECONDS)  # the network, not the CPU
        return self.data[index], index % CLASSES


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Stored(), BATCH, shuffle=True, num_workers=0)
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
