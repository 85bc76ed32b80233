"""A setting of the main thread's goes back on it, whenever the agent must leave."""

from __future__ import annotations

import subprocess
import sys

# The agent leaves at random moments: in a product, in gradients with hooks in Python, in Python.
JOB = """
import random, sys, threading, time
import torch
from whyidle.agents.knobs import Knobs
from whyidle.agents.main_thread import MainThreadCall
torch.set_num_threads(3)
a = torch.randn(400, 400, requires_grad=True)
slow = lambda gradient: sum(range(2000)) and None
rng = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    call = MainThreadCall(threading.get_ident())
    knobs = Knobs(lambda record: None, call)
    assert knobs.turn(1, "torch.threads", 1, time.monotonic_ns()) is None
    call.run_pending()
    assert torch.get_num_threads() == 1
    other = threading.Thread(target=lambda: (time.sleep(rng.random() * 0.02), knobs.undo()))
    other.start()
    x = a
    for _ in range(4):
        x = torch.tanh(x @ a / 20)
        x.register_hook(slow)
    x.sum().backward()
    a.grad = None
    other.join()
    for _ in range(10):
        pass
    assert torch.get_num_threads() == 3, torch.get_num_threads()
print("as before")
"""
TIMES = 150


def test_the_main_thread_takes_it_back_when_the_agent_leaves_at_any_moment() -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB, "1", str(TIMES)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("as before\n", 0), done.stderr
