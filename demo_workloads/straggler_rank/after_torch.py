"""Train a classifier of files on several ranks, each with its own part of the files.

Run: python demo_workloads/straggler_rank/after_torch.py --seconds 20  # 18 show it
"""

import argparse
import random
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

SEED = 1
FILES, USUAL_BYTES, BATCH, HIDDEN, CLASSES = 256, 60_000, 16, 1024, 8
WARM_UP = 20


def files_by_size() -> list[bytes]:
    """Return compressed files as a directory lists them that is sorted by size."""
    random.seed(SEED)
    words = b" ".join(str(random.random()).encode() for _ in range(20_000))
    sizes = sorted(int(random.expovariate(1 / USUAL_BYTES)) + 1000 for _ in range(FILES))
    return [zlib.compress(words[:size], 1) for size in sizes]


def part_of(files: list[bytes], rank: int, ranks: int) -> list[bytes]:
    return files[rank::ranks]


def features(file: bytes) -> np.ndarray:
    return np.bincount(np.frombuffer(zlib.decompress(file), np.uint8), minlength=256)


def train(rank: int, ranks: int, meet: str, seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meet}", rank=rank, world_size=ranks)
    files = part_of(files_by_size(), rank, ranks)
    model = nn.Sequential(
        nn.Linear(256, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )  # fmt: skip
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    labels = torch.randint(CLASSES, (BATCH,))
    done, began, go_on = -WARM_UP, time.perf_counter(), torch.ones(1)
    while done < steps and go_on.item():
        x = np.stack([features(file) for file in random.choices(files, k=BATCH)])
        loss = nn.functional.cross_entropy(parallel(torch.from_numpy(x).float()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == 0:
            began = time.perf_counter()
        if done % 10 == 0:  # all ranks end together
            go_on[0] = done < 0 or time.perf_counter() - began < seconds
            dist.broadcast(go_on, 0)
    took, samples = time.perf_counter() - began, ranks * BATCH * done
    if rank == 0:
        print(f"{done} steps, {1000 * took / done:.3f} ms a step, {samples / took:.0f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    asked.add_argument("--ranks", type=int, default=2)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        more = given.ranks, f"{folder}/meet", given.seconds, given.steps
        multiprocessing.spawn(train, more, nprocs=given.ranks)  # type: ignore[attr-defined]
