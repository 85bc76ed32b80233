"""Generate text with a small transformer that keeps the keys and values of what it has read.

Run: python demo_workloads/growing_sequence/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn
from torch.nn import functional as f

SEED = 1
WORDS, WIDTH, HEADS, LAYERS = 512, 128, 4, 2
PROMPT, LONGEST = 16, 144
BATCH = 4
WARM = 1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.zeros(BATCH, HEADS, LONGEST, WIDTH // HEADS, device=DEVICE)
        self.values = torch.zeros_like(self.keys)
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.to_out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        query, keys, values = self.to_qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        self.keys[:, :, at], self.values[:, :, at] = keys, values
        read = torch.arange(LONGEST, device=DEVICE) <= at[:, None]
        mixed = f.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=read)
        x = x + self.to_out(mixed.transpose(1, 2).flatten(2))
        return torch.add(x, self.feed(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(at)
        for block in self.blocks:
            x = block(x, at)
        scores: torch.Tensor = self.head(x[:, -1])
        return scores


@torch.inference_mode()
def generate(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    at, text = torch.arange(PROMPT, device=DEVICE), [tokens]
    for _ in range(PROMPT, LONGEST):
        best = model(text[-1], at).argmax(1, keepdim=True)
        at, text = at[-1:] + 1, [*text, best]
    return torch.cat(text, dim=1)


def serve(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Model().to(DEVICE).eval()
    text = torch.empty(0)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        text = generate(model, torch.randint(WORDS, (BATCH, PROMPT), device=DEVICE))
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = text.sum().item(), time.perf_counter() - began  # once all has run
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {BATCH * done / took:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    serve(given.seconds, given.steps)
