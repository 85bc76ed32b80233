# Double, duelling DQN from pixels on a batch of small paddle-and-ball games.
import argparse
import collections
import os
import tempfile
import time
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

#@ imports


@dataclass
class Args:
    scale: float = 1.0
    """multiplies the batch size"""
    seed: int = 1
    total_updates: int = 100_000_000
    num_envs: int = 16
    buffer_size: int = 40_000
    """transitions over all environments"""
    learning_starts: int = 4_000
    batch_size: int = 64
    updates_per_act: int = 4
    """gradient updates between two steps of the environments"""
    learning_rate: float = 2.5e-4
    gamma: float = 0.97
    target_every: int = 250
    start_e: float = 1.0
    end_e: float = 0.02
    exploration_updates: int = 4_000
    log_every: int = 100
    save_every: int = 5_000


class VecPaddle:
    """`num_envs` one-player pong games that advance together; finished games restart at once.

    The ball bounces off the side walls and the ceiling. Catching it pays +1, and missing it
    pays -1 and ends the game, as does a hundred and fifty ticks.
    """

    size = 42
    num_actions = 3  # left, stay, right

    def __init__(self, num_envs, rng, max_ticks=150):
        self.n, self.rng, self.max_ticks = num_envs, rng, max_ticks
        self.pos = np.zeros((num_envs, 2), np.float32)
        self.vel = np.zeros((num_envs, 2), np.float32)
        self.paddle = np.zeros(num_envs, np.float32)
        self.ticks = np.zeros(num_envs, np.int64)
        self.returns = np.zeros(num_envs, np.float32)
        self.rows = np.arange(num_envs)[:, None]

    def _restart(self, which):
        k = int(which.sum())
        self.pos[which, 0] = self.rng.uniform(4, self.size - 4, k)
        self.pos[which, 1] = self.rng.uniform(3, 12, k)
        self.vel[which, 0] = self.rng.uniform(-1.8, 1.8, k)
        self.vel[which, 1] = self.rng.uniform(1.2, 2.0, k)
        self.paddle[which] = self.rng.uniform(5, self.size - 5, k)
        self.ticks[which] = 0
        self.returns[which] = 0

    def reset(self):
        self._restart(np.ones(self.n, bool))
        return self.render()

    def step(self, actions):
        edge, floor = self.size - 2, self.size - 4
        self.paddle = np.clip(self.paddle + 2.0 * (actions - 1), 4, self.size - 5).astype(np.float32)
        self.pos += self.vel
        x, y = self.pos[:, 0], self.pos[:, 1]
        self.vel[:, 0] = np.where((x < 1) | (x > edge), -self.vel[:, 0], self.vel[:, 0])
        down = y >= floor
        caught = down & (np.abs(x - self.paddle) <= 5.0)
        missed = down & ~caught
        self.vel[:, 1] = np.where(caught | (y < 1), -self.vel[:, 1], self.vel[:, 1])
        self.vel[caught, 0] += 0.2 * (x - self.paddle)[caught]
        np.clip(self.vel[:, 0], -2.0, 2.0, out=self.vel[:, 0])
        np.clip(x, 1, edge, out=x)
        np.clip(y, 1, floor, out=y)

        rewards = caught.astype(np.float32) - missed.astype(np.float32)
        self.ticks += 1
        self.returns += rewards
        dones = missed | (self.ticks >= self.max_ticks)
        finished = self.returns[dones]
        if dones.any():
            self._restart(dones)
        return self.render(), rewards, dones, finished

    def render(self):
        screen = np.zeros((self.n, self.size, self.size), np.uint8)
        bx, by = self.pos.astype(np.int64).clip(1, self.size - 2).T
        near = np.arange(-1, 2)
        screen[self.rows[:, :, None], (by[:, None] + near)[:, :, None], (bx[:, None] + near)[:, None]] = 255
        wide = self.paddle.astype(np.int64)[:, None] + np.arange(-4, 5)
        screen[self.rows, self.size - 2, wide] = 180
        return screen


class ReplayBuffer:
    """Keeps single frames in a ring and puts the stacks together when sampled."""

    def __init__(self, length, num_envs, size, rng, stack=4):
        self.length, self.num_envs, self.stack, self.rng = length, num_envs, stack, rng
        self.frames = np.full((length, num_envs, size, size), 0, np.uint8)
        self.actions = np.zeros((length, num_envs), np.int64)
        self.rewards = np.zeros((length, num_envs), np.float32)
        self.dones = np.ones((length, num_envs), np.float32)
        self.head, self.filled = 0, 0

    def add(self, frames, actions, rewards, dones):
        h = self.head
        self.frames[h], self.actions[h], self.rewards[h], self.dones[h] = frames, actions, rewards, dones
        self.head = (h + 1) % self.length
        self.filled = min(self.filled + 1, self.length)

    def sample(self, batch_size):
        # offsets are counted back from the newest entry, so that no stack spans the write head
        age = self.rng.integers(2, self.filled - self.stack, batch_size)
        env = self.rng.integers(0, self.num_envs, batch_size)
        t = self.head - age
        span = (t[:, None] + np.arange(1 - self.stack, 2)) % self.length
        frames = self.frames[span, env[:, None]]
        # blank what belongs to the game before
        alive = 1.0 - self.dones[span[:, : self.stack - 1], env[:, None]]
        keep = np.cumprod(alive[:, ::-1], axis=1)[:, ::-1].astype(np.uint8)
        frames[:, : self.stack - 1] *= keep[:, :, None, None]
        t = t % self.length
        actions, rewards, dones = self.actions[t, env], self.rewards[t, env], self.dones[t, env]
        #@ batch arrays=frames,actions,rewards,dones
        return frames, actions, rewards, dones


class QNetwork(nn.Module):
    def __init__(self, num_actions, stack=4):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(stack, 32, 5, stride=2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 256), nn.ReLU(),
        )
        self.value = nn.Linear(256, 1)
        self.advantage = nn.Linear(256, num_actions)

    def forward(self, obs):
        #@ forward x=obs
        h = self.trunk(obs.float() / 255.0)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(1, keepdim=True)


def to_device(array, device):
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def epsilon_at(update, args):
    part = min(1.0, update / args.exploration_updates)
    return args.start_e + part * (args.end_e - args.start_e)


def parse_args():
    parser = argparse.ArgumentParser()
    for f in fields(Args):
        parser.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default)
    return Args(**vars(parser.parse_args()))


if __name__ == "__main__":
    args = parse_args()
    batch_size = max(4, int(args.batch_size * args.scale))
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = os.path.join(tempfile.gettempdir(), f"dqn_paddle_{args.seed}.pt")

    envs = VecPaddle(args.num_envs, rng)
    rb = ReplayBuffer(args.buffer_size // args.num_envs, args.num_envs, envs.size, rng)
    q_network = QNetwork(envs.num_actions).to(device)
    target_network = QNetwork(envs.num_actions).to(device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate, eps=1.5e-4)

    stacked = np.zeros((args.num_envs, rb.stack, envs.size, envs.size), np.uint8)
    stacked[:, -1] = envs.reset()
    recent_returns = collections.deque(maxlen=100)

    def act(epsilon):
        """Advance every environment by one tick, epsilon-greedily, and remember what happened."""
        actions = rng.integers(0, envs.num_actions, args.num_envs)
        greedy = rng.random(args.num_envs) >= epsilon
        if greedy.any():
            with torch.no_grad():
                q_values = q_network(to_device(stacked, device))
            actions = np.where(greedy, q_values.argmax(1).cpu().numpy(), actions)
        frames, rewards, dones, finished = envs.step(actions)
        rb.add(stacked[:, -1], actions, rewards, dones)
        recent_returns.extend(finished.tolist())
        stacked[:, :-1] = stacked[:, 1:]
        stacked[dones] = 0
        stacked[:, -1] = frames

    for _ in range(args.learning_starts // args.num_envs):
        act(1.0)
    print(f"buffer holds {rb.filled * args.num_envs} transitions, training on {device} with batches of {batch_size}")

    started = time.time()
    #@ setup
    for update in range(1, args.total_updates + 1):
        if update % args.updates_per_act == 0:
            act(epsilon_at(update, args))

        frames, actions, rewards, dones = (to_device(a, device) for a in rb.sample(batch_size))
        obs, next_obs = frames[:, :-1], frames[:, 1:]
        with torch.no_grad():
            best = q_network(next_obs).argmax(1, keepdim=True)
            next_value = target_network(next_obs).gather(1, best).squeeze(1)
            td_target = rewards + args.gamma * (1.0 - dones) * next_value
        q_value = q_network(obs).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q_value, td_target)

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(q_network.parameters(), 10.0)
        optimizer.step()

        if update % args.target_every == 0:
            target_network.load_state_dict(q_network.state_dict())
        if update % args.log_every == 0:
            mean_return = np.mean(recent_returns) if recent_returns else float("nan")
            print(
                f"update={update} td_loss={loss.item():.5f} q={q_value.mean().item():.3f} "
                f"return={mean_return:.2f} eps={epsilon_at(update, args):.3f} "
                f"UPS={update / (time.time() - started):.1f}",
                flush=True,
            )
        if update % args.save_every == 0:
            torch.save(q_network.state_dict(), checkpoint)
        #@ step loss=loss model=q_network batch=obs,actions,rewards,next_obs opt=optimizer index=update
