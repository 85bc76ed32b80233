"""What less frequent exchanges give back to ranks on a CPU: gradients of every batch, or of four.

Two ranks on gloo, one thread each. "Waits" is the part of a step in which the main thread waits in
the exchange, as samples of it would find; "back" the part of a step that comes back when gradients
of four batches are added up before they are exchanged. Both ways take turns in one job.

Run: .venv/bin/python benchmarks/exchange.py [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
ACCUMULATE = 4
TURNS = 10
STEPS = 12
# Name: width and number of layers, and samples of a batch.
NETWORKS = {
    "20 parameters": (20, 0, 32),
    "a small perceptron": (64, 2, 64),
    "a wide perceptron": (512, 3, 64),
    "a large batch": (256, 3, 1024),
    "25 million parameters": (2048, 6, 32),
}


def _network(width: int, layers: int) -> nn.Module:
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def _turn(model: Any, optimizer: Any, x: torch.Tensor, each: int) -> tuple[float, float]:
    """Return the seconds of a step, and those of it in the exchange."""
    waited, began = 0.0, time.perf_counter()
    for number in range(1, STEPS + 1):
        last = number % each == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(x).square().mean() / each
            at = time.perf_counter()
            loss.backward()
        if last:
            waited += time.perf_counter() - at
            optimizer.step()
            optimizer.zero_grad()
    return (time.perf_counter() - began) / STEPS, waited / STEPS


def _rank(rank: int, folder: str, shape: tuple[int, int, int]) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    width, layers, batch = shape
    network = _network(width, layers)
    alone = _network(width, layers)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(batch, width)
    taken: dict[int, list[tuple[float, float]]] = {1: [], ACCUMULATE: []}
    for turn in range(-2, TURNS):
        for each, found in taken.items():
            got = _turn(model, optimizer, x, each)
            if turn >= 0:
                found.append(got)
    # What a backward pass takes without any exchange.
    passes = []
    for _ in range(STEPS):
        loss = alone(x).square().mean()
        at = time.perf_counter()
        loss.backward()
        passes.append(time.perf_counter() - at)
    if rank == 0:
        step, backward = (statistics.median(t[n] for t in taken[1]) for n in (0, 1))
        less = statistics.median(t[0] for t in taken[ACCUMULATE])
        waits = max(0.0, backward - statistics.median(passes)) / step
        found_ = {"step_ms": 1e3 * step, "waits": waits, "back": 1 - less / step}
        Path(folder, "found").write_text(json.dumps(found_))
    dist.destroy_process_group()


def measured() -> dict[str, dict[str, float]]:
    """Return for each network what the exchange takes, and what comes back."""
    found = {}
    for name, shape in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_rank, (folder, shape), RANKS)
            found[name] = json.loads(Path(folder, "found").read_text())
    return found


def main() -> None:
    """Print the table."""
    wanted = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    wanted.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = wanted.parse_args()
    found = measured()
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for name, row in found.items():
        part = row["back"] / row["waits"] if row["waits"] else float("nan")
        print(
            f"{name:<24} step {row['step_ms']:7.2f} ms  waits {row['waits']:4.0%}"
            f"  back {row['back']:4.0%}  of the wait {part:4.2f}"
        )


if __name__ == "__main__":
    main()
