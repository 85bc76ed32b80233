"""Train a network of many small operations, each of them launched by Python.

Run: python demo_workloads/eager_launch_bound/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import chain, repeat
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 65_536, 128, 64, 10
BATCH, LAYERS = 64, 16
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Samples(Dataset[torch.Tensor]):
    """Samples in memory, of which a whole batch is taken at once."""

    def __init__(self) -> None:
        self.data = torch.randn(SAMPLES, FEATURES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, chosen: list[int]) -> torch.Tensor:
        return self.data[chosen]


class Gated(nn.Module):
    """A layer of small steps: each line is several operations, and as many in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(HIDDEN))
        self.shift = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale + self.shift
        gate = (normed * 0.2 + 0.5).clamp(0, 1)
        kept = normed * gate
        return x + kept - 0.1 * kept * kept.abs() + (1 - gate) * normed * 0.3


class Model(nn.Module):
    """Layers of this kind between two linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.layers = nn.ModuleList(Gated() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> Any:
        x = self.into(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    loader = DataLoader(Samples(), BATCH, shuffle=True, drop_last=True, collate_fn=lambda x: x)
    model = Model()
    model.to(DEVICE)
    model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    done, took, began = 0, 0.0, time.perf_counter()
    for step, batch in enumerate(chain.from_iterable(repeat(loader)), 1):
        x = batch.to(DEVICE)
        loss = nn.functional.cross_entropy(model(x), x[:, :CLASSES].argmax(1))
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
