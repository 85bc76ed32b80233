"""Learn to balance a pole by policy gradients, from an environment that is written here.

Run: python demo_workloads/environment_stepping/before_torch.py --seconds 20
"""

import argparse
import time
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import nn

SEED = 1
ENVIRONMENTS = 1
ROLLOUT, HIDDEN, MOST = 512, 64, 200
WARM = 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class CartPole:
    """A cart that is pushed to the left or to the right, and a pole that must not fall."""

    def __init__(self, draw: np.random.Generator, size: int | tuple[int, int]) -> None:
        self.draw, self.size = draw, size

    def reset(self) -> Any:
        self.time = 0
        self.state = self.draw.uniform(-0.05, 0.05, self.size)
        return self.state

    def step(self, move: Any) -> tuple[Any, Any, Any]:
        for _ in range(4):  # the physics are finer than the actions
            x, speed, angle, turn = self.state
            push = np.where(move, 10.0, -10.0) + 0.05 * turn**2 * np.sin(angle)
            bent = (9.8 * np.sin(angle) - np.cos(angle) * push / 1.1) / (
                0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
            )
            pull = push / 1.1 - 0.05 * bent * np.cos(angle) / 1.1
            self.state = np.stack([
                x + 0.005 * speed, speed + 0.005 * pull, angle + 0.005 * turn, turn + 0.005 * bent
            ])  # fmt: skip
        self.time += 1
        ended = (abs(self.state[0]) > 2.4) | (abs(self.state[2]) > 0.21) | (self.time >= MOST)
        return self.state, 1.0 - ended, ended


def returns(rewards: list[Any], ended: list[Any]) -> torch.Tensor:
    total, found = 0.0, []
    for reward, end in zip(reversed(rewards), reversed(ended), strict=True):
        total = reward + 0.99 * total * (1.0 - end)
        found.append(total)
    values = torch.tensor(np.array(found[::-1]), dtype=torch.float32, device=DEVICE).flatten()
    return (values - values.mean()) / (values.std() + 1e-6)


def train(seconds: float, steps: int) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    cart = CartPole(np.random.default_rng(SEED), 4)
    policy = nn.Sequential(nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2)).to(DEVICE)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    seen = cart.reset()
    done, took, began = 0, 0.0, time.perf_counter()
    for step in count(1):
        rollout: tuple[list[Any], ...] = ([], [], [], [])
        for _ in range(ROLLOUT // ENVIRONMENTS):
            state = torch.tensor(seen.T, dtype=torch.float32, device=DEVICE).reshape(-1, 4)
            with torch.no_grad():
                move = torch.distributions.Categorical(logits=policy(state)).sample()
            seen, reward, end = cart.step(move.item())
            for kept, new in zip(rollout, (state, move, reward, end), strict=True):
                kept.append(new)
            if end:
                seen = cart.reset()
        states, moves = torch.cat(rollout[0]), torch.cat(rollout[1])
        chosen = policy(states).log_softmax(1).gather(1, moves[:, None]).squeeze(1)
        loss = -(chosen * returns(*rollout[2:])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == WARM:
            began = time.perf_counter()
        took = time.perf_counter() - began
        done = step - WARM
        if done == steps or (done > 0 and took > seconds):
            break
    _, took = next(policy.parameters()).sum().item(), time.perf_counter() - began  # all has run
    rate = ROLLOUT * done / took
    print(f"{done} steps, {1000 * took / done:.3f} ms a step, {rate:.0f} samples/s")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=20)
    asked.add_argument("--steps", type=int, default=10**9)
    given = asked.parse_args()
    train(given.seconds, given.steps)
