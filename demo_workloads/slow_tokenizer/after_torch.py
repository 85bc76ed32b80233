"""Train a small classifier of texts, which are cut into tokens by pairs of bytes as they come.

Run: python demo_workloads/slow_tokenizer/after_torch.py --seconds 20
"""

import argparse
import random
import time
from itertools import count, pairwise

import torch
from torch import nn

SEED = 1
TEXTS, WORDS, TOKENS, WIDTH, CLASSES = 400, 60, 2000, 512, 4
BATCH = 16
WARM = 10
LETTERS = "etaoinshrdlu"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
random.seed(SEED)
TEXT = [
    " ".join("".join(random.choices(LETTERS, k=random.randint(2, 9))) for _ in range(WORDS))
    for _ in range(TEXTS)
]


class Tokenizer:
    """Puts the pair together that was most frequent, then the next one."""

    def __init__(self) -> None:
        pairs = [(a, b) for a in LETTERS for b in LETTERS]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}

    def bpe(self, word: str) -> list[str]:
        parts = list(word)
        while len(parts) > 1:
            rank, at = min((self.ranks.get(p, TOKENS), at) for at, p in enumerate(pairwise(parts)))
            if rank == TOKENS:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def encode(self, text: str) -> list[int]:
        return [sum(map(ord, part)) % TOKENS for word in text.split() for part in self.bpe(word)]


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    labels = torch.randint(CLASSES, (TEXTS,), device=DEVICE)
    layers = nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, CLASSES)
    model = nn.Sequential(nn.EmbeddingBag(TOKENS, WIDTH), *layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tokenizer = Tokenizer()
    encoded = [tokenizer.encode(text) for text in TEXT]  # once, before training
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        chosen = torch.randint(TEXTS, (BATCH,)).tolist()
        rows = [encoded[each] for each in chosen]
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=DEVICE)
        loss = nn.functional.cross_entropy(model(tokens), labels[chosen])
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
