"""Learn who clicks on what from two tables of 200,000 rows, with gradients of the rows used alone.

Run: python demo_workloads/dense_embedding_gradients/after_torch.py --seconds 20
"""

import argparse
import time
from itertools import count

import torch
from torch import nn

SEED = 1
USERS, THINGS, WIDTH, HIDDEN = 200_000, 200_000, 32, 128
BATCH = 2048
WARM = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.things = nn.Embedding(THINGS, WIDTH, sparse=True)
        self.score = nn.Sequential(nn.Linear(2 * WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, user: torch.Tensor, thing: torch.Tensor) -> torch.Tensor:
        return torch.squeeze(self.score(torch.cat([self.users(user), self.things(thing)], 1)), 1)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Clicks().to(DEVICE)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        user = torch.randint(USERS, (BATCH,), device=DEVICE)
        thing = torch.randint(THINGS, (BATCH,), device=DEVICE)
        clicked = ((user + thing) % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, thing), clicked)
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
