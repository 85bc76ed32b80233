"""Record the two traces in kineto/ again: ``cd tests/data/traces && python make_kineto.py``.

A small training loop on the CPU, as people write it: it is the user's code of both traces. One has
Python frames and step markers, the other neither. Paths are relative, so none of the machine stay.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

HERE = Path("kineto")
STEPS = 4
BATCH = 3
FEATURES = 16


class Signals(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Noisy signals, made when they are asked for."""

    def __len__(self) -> int:
        return BATCH * (STEPS + 2)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        signal = torch.sin(torch.arange(FEATURES) * 0.1 + index)
        return augment(signal), signal.sum()


def augment(signal: torch.Tensor) -> torch.Tensor:
    """Slow on purpose: one sample at a time, in Python."""
    for _ in range(3):
        signal = signal + torch.randn(FEATURES) * 0.01
    return signal


class Regressor(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(x))).squeeze(-1)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: list[torch.Tensor]
) -> float:
    """One step, with the ``.item()`` that waits for the device."""
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.item()


def train(profiler: profile | None) -> None:
    """The loop."""
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for batch in DataLoader(Signals(), batch_size=BATCH, num_workers=0):
        train_step(model, optimizer, batch)
        if profiler is not None:
            profiler.step()


def keep(profiler: profile, name: str) -> None:
    """Write what was recorded as it is, but for the name of the machine."""
    profiler.export_chrome_trace(f"{name}.json")
    recorded = Path(f"{name}.json")
    text = re.sub(r'"host_name": "[^"]*"', '"host_name": "host"', recorded.read_text())
    recorded.unlink()
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Record both."""
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(None)  # what happens only once is no part of a trace
    cpu = [ProfilerActivity.CPU]
    with profile(
        activities=cpu,
        with_stack=True,
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda p: keep(p, "cpu_steps_stacks"),
    ) as profiler:
        train(profiler)
    with profile(activities=cpu) as profiler:
        train(None)
    keep(profiler, "cpu_plain")


if __name__ == "__main__":
    main()
