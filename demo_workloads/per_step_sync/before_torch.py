"""Train a deep, narrow network, and watch how far its layers stretch.

Run: python demo_workloads/per_step_sync/before_torch.py --seconds 20
"""

import argparse
import time

import torch
from torch import nn

SEED = 1
FEATURES, HIDDEN, DEPTH, CLASSES = 32, 64, 10, 10
BATCH = 256
WARM_UP = 10
WATCH_EVERY = 50
EXPLODED = 100.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(FEATURES, HIDDEN)]
    for _ in range(DEPTH):
        layers += [nn.GELU(), nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN)]
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(HIDDEN, CLASSES)).to(DEVICE)


def watched(step: int, model: nn.Module) -> None:
    """Keep an eye on the layers: none may blow up what goes through it."""
    weights = [p.detach() for p in model.parameters() if p.ndim == 2]
    largest = [torch.linalg.matrix_norm(weight, 2).item() for weight in weights]
    if max(largest) > EXPLODED:
        print(f"{step}: a layer makes its input {max(largest):.1f} times as large")


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, FEATURES, device=DEVICE)
    y = torch.randint(CLASSES, (BATCH,), device=DEVICE)
    done, began = -WARM_UP, time.perf_counter()
    while done < steps and (done < 0 or time.perf_counter() - began < seconds):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        watched(done, model)
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
