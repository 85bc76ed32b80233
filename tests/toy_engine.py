"""A server of a language model in small, with the processes of vLLM: front, engine core, worker.

    python tests/toy_engine.py [--seconds S] [--python MS] [--rest MS]

The front asks the core over a pipe, as many requests as fit in a batch; the core schedules, and
spins on shared memory until the worker has computed. ``--python``: what the worker does in Python
for each token, instead of computing. ``--rest``: how long the front does nothing after an answer.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import torch

TOKENS, BATCH, WIDTH = 64, 8, 512
ASKED, DONE = 0, 1
PR_SET_PDEATHSIG = 1


def call_me(title: str) -> None:
    """Give this process another title, as setproctitle does, and have it end with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


class Turns:
    """Two counters in shared memory: how often work was given, and how often it was done."""

    def __init__(self, name: str | None = None) -> None:
        self.memory = SharedMemory(name, create=name is None, size=16)
        self.counts = self.memory.buf.cast("Q")

    def wait_for(self, which: int, number: int) -> None:
        """Wait until a counter has come so far; vLLM spins as well."""
        while self.counts[which] < number:
            os.sched_yield()


def compute(weights: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Return what the model says of a batch."""
    for _ in range(40):
        batch = torch.tanh(batch @ weights)
    return batch


def penalise(seconds: float) -> int:
    """Go through the tokens in Python, as a logits processor does."""
    until = time.perf_counter() + seconds
    seen = 0
    while time.perf_counter() < until:
        for token in range(1000):
            seen += token % 7
    return seen


def worker_busy_loop(name: str, python_s: float) -> None:
    """Compute whenever the core asks for it."""
    call_me("VLLM::Worker")
    torch.set_num_threads(1)
    turns, turn = Turns(name), 0
    weights, batch = torch.randn(WIDTH, WIDTH) / WIDTH, torch.randn(BATCH * 8, WIDTH)
    while True:
        turn += 1
        turns.wait_for(ASKED, turn)
        batch = compute(weights, batch)
        if python_s:
            penalise(python_s)
        turns.counts[DONE] = turn


def run_busy_loop(requests: Connection, python_s: float) -> None:
    """Schedule what the front asks for, one token of each request after the other."""
    call_me("VLLM::EngineCore")
    turns, turn = Turns(), 0
    spawn = multiprocessing.get_context("spawn")
    spawn.Process(target=worker_busy_loop, args=(turns.memory.name, python_s), daemon=True).start()
    while True:
        prompts = requests.recv()
        for _ in range(TOKENS):
            turn += 1
            turns.counts[ASKED] = turn
            turns.wait_for(DONE, turn)
        requests.send([turn] * len(prompts))


def main() -> None:
    """Ask for one batch after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--python", type=float, default=0, metavar="MS")
    parser.add_argument("--rest", type=float, default=0, metavar="MS")
    wanted = parser.parse_args()
    until = time.monotonic() + wanted.seconds
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    core = spawn.Process(target=run_busy_loop, args=(theirs, wanted.python / 1000))
    core.start()
    while time.monotonic() < until:
        mine.send(["Once upon a time"] * BATCH)
        mine.recv()
        time.sleep(wanted.rest / 1000)
    core.kill()


if __name__ == "__main__":
    main()
