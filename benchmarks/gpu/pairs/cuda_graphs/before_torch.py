"""Train a deep network of small layers, whose kernels are launched.

Run: python benchmarks/gpu/pairs/cuda_graphs/before_torch.py --seconds 20

Faults: eager_launch_bound
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

SEED = 1
WARM, LOOK_EVERY = 20, 100
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH, LAYERS = 256, 256, 24


class Block(nn.Module):
    """A norm, a layer and what lies between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.linear(self.norm(x)))


def training() -> Callable[[], None]:
    torch.manual_seed(SEED)
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, WIDTH, device=DEVICE)
    done = 0

    def work() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def step() -> None:
        nonlocal done
        loss = work()
        done += 1
        if done % LOOK_EVERY == 0:
            print(f"loss {loss.item():.3f}")

    return step


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def train(seconds: float, steps: int) -> None:
    step = training()
    done, began = -WARM, time.perf_counter()
    while done < steps and (done <= 0 or time.perf_counter() - began < seconds):
        step()
        done += 1
        if done == 0:
            wait()
            began = time.perf_counter()
    wait()
    took = time.perf_counter() - began
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
