"""Train a small network on batches so small that each step is mostly overhead.

Run: python demo_workloads/tiny_work/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import chain, repeat

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 1
SAMPLES, FEATURES, HIDDEN, CLASSES = 65_536, 128, 128, 10
BATCH = 512
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


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    loader = DataLoader(Samples(), BATCH, shuffle=True, drop_last=True, collate_fn=lambda x: x)
    deep = [(nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU()) for _ in range(4)]
    layers = nn.Linear(FEATURES, HIDDEN), *chain(*deep), nn.Linear(HIDDEN, CLASSES)
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
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
