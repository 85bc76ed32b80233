"""Train a convolutional network whose blocks are all checkpointed, in memory that is mostly free.

Run: python demo_workloads/recomputed_activations/before_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

SEED = 1
CHANNELS, BLOCKS, SIZE, CLASSES = 32, 8, 32, 10
BATCH = 16
WARM = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm = nn.GroupNorm(4, CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, self.second(torch.relu(self.norm(self.first(x)))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return torch.flatten(self.head(x.mean((2, 3))), 1)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Network().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        images = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE)
        labels = images[:, 0, 0, :CLASSES].argmax(1)
        loss = nn.functional.cross_entropy(model(images), labels)
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
