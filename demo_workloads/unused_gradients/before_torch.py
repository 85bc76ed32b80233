"""Train a head on an encoder that stays as it is, and compute the gradients of all of it.

Run: python demo_workloads/unused_gradients/before_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
CHANNELS, BLOCKS, SIZE, CLASSES = 32, 6, 32, 10
BATCH = 16
WARM = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def block() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.GroupNorm(4, CHANNELS),
        nn.ReLU(),
    )


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.encoder = nn.Sequential(stem, *(block() for _ in range(BLOCKS)))
        self.head = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.flatten(self.head(self.encoder(images).mean((2, 3))), 1)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Classifier().to(DEVICE)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        images = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE)
        labels = images[:, 0, 0, :CLASSES].argmax(1)
        loss = nn.functional.cross_entropy(model(images), labels)
        model.zero_grad()
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
