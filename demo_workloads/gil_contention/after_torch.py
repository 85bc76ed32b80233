"""Train a small network on words, while a process counts the words of the shards that come next.

Run: python demo_workloads/gil_contention/after_torch.py --seconds 20
"""

import argparse
import random
import time
from collections import Counter
from itertools import count
from multiprocessing import Process

import torch
from torch import nn

SEED = 1
WORDS, LENGTH, FEATURES, HIDDEN, CLASSES = 5_000, 32, 128, 256, 10
BATCH = 128
SHARD = 2_000
WARM = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def count_words(seed: int) -> None:
    """Count how often each word stands in one shard after the other, as these come in."""
    chance, seen = random.Random(seed), Counter[str]()
    while True:
        time.sleep(0.05)
        for _ in range(SHARD):
            line = " ".join(f"w{chance.randrange(WORDS)}" for _ in range(LENGTH))
            seen.update(word.strip(".,").lower() for word in line.split())


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    Process(target=count_words, args=(SEED,), daemon=True).start()
    model = nn.Sequential(
        nn.EmbeddingBag(WORDS, FEATURES), nn.Linear(FEATURES, HIDDEN), nn.GELU(),
        nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        words = torch.randint(WORDS, (BATCH, LENGTH), device=DEVICE)
        labels = words[:, 0] % CLASSES
        loss = nn.functional.cross_entropy(model(words), labels)
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
