"""Ends at a bad moment: an agent that leaves during a trace, a block that is freed."""

from __future__ import annotations

import subprocess
import sys
from _thread import get_ident
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT
from whyidle.agents.torch.entered_blocks import EnteredBlocks

torch = pytest.importorskip("torch")

# Ends traces of ours from another thread while the main one goes in and out of blocks. One that was
# still open then ends in a profile of the user's own, where it would be written to freed memory.
ABORTED = """
import _thread, sys
sys.path.insert(0, sys.argv[1])
import torch
from torch.autograd.profiler import record_function
from agents.steps import Steps
from agents.torch.tracing import TorchTracer

steps = Steps(_thread.get_ident())
tick, stop = steps.listen("optimizer")
tracer, x, blocks = TorchTracer(steps.main_call), torch.ones(4), 0
with record_function("warm"): x + 1
for _ in range(40):
    tracer.start(10**9)
    tick(0)
    assert tracer._profilers.began() is not None, tracer._profilers.why_not
    done, left = [], []
    _thread.start_new_thread(lambda: (tracer.abort(), done.append(1)), ())
    while not done:
        block = record_function(f"block {blocks}"); block.__enter__(); left.append(block)
        blocks += 1
        x + 1
        if len(left) > 3: left.pop(0).__exit__(None, None, None)
    tracer._profilers.take()
    with torch.profiler.profile():
        much = [torch.ones(8) + 1 for _ in range(200)]
        for block in left: block.__exit__(None, None, None)
        much = [torch.ones(8) + 1 for _ in range(200)]
print("alive")
"""


def test_an_agent_that_leaves_during_a_trace_leaves_no_block_open() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABORTED, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


# The agent leaves while gradients are computed, by Python code that calls many functions: the trace
# ends after them, though the agent has gone, and they are asked a few hundred times a second.
IN_GRADIENTS = """
import _thread, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from agents.steps import Steps
from agents.torch.tracing import TorchTracer

steps = Steps(_thread.get_ident())
tick, stop = steps.listen("optimizer")
tracer = TorchTracer(steps.main_call)
asked, run_pending = [], steps.main_call.run_pending
steps.main_call.run_pending = lambda: (asked.append(1), run_pending())
tracer.start(10**10)
tick(0)
assert tracer._profilers.began() is not None, tracer._profilers.why_not
asked.clear()

def call(): pass

def slow(gradient):
    done = []
    _thread.start_new_thread(lambda: (tracer.abort(), tracer.undo(), done.append(1)), ())
    while not done: call()
    until, calls = time.monotonic() + 0.5, 0
    while time.monotonic() < until:
        call(); calls += 1
    assert tracer._profilers.is_open()
    assert 0 < len(asked) < 1500 < calls, (len(asked), calls)
    return gradient

numbers = torch.ones(3, requires_grad=True)
numbers.register_hook(slow)
(numbers * 2).sum().backward()
until = time.monotonic() + 20
while tracer._profilers.is_open(): assert time.monotonic() < until, "it stays open"
with torch.profiler.profile() as profile: torch.ones(8) + 1
assert len(profile.events()) > 0
print("alive")
"""


def test_an_agent_that_leaves_while_gradients_are_computed_ends_its_trace_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_GRADIENTS, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


class _Fleeting(list):  # type: ignore[type-arg]
    def __reversed__(self) -> Iterator[Any]:
        raise RuntimeError("dictionary changed size during iteration")


def test_a_block_that_goes_while_it_is_inspected_raises_nothing() -> None:
    entered = EnteredBlocks({"end": None})  # type: ignore[dict-item]
    entered.watch(get_ident())
    try:
        blocks = [torch.autograd.profiler.record_function("block") for _ in range(2)]
        for block in blocks:
            block.__enter__()

        class Going(dict):  # type: ignore[type-arg]
            """Loses an item as soon as Python code iterates over it."""

            def values(self) -> Any:
                return _Fleeting(super().values())

        entered._met = Going(entered._met)
        assert entered.is_halfway() is False
        for block in reversed(blocks):
            block.__exit__(None, None, None)
    finally:
        entered.leave()


# A job whose whole step is one CUDA graph has no optimizer's steps: to wait for one in each window
# takes a second each.
WITHOUT_STEPS = """
import _thread, sys
sys.path.insert(0, sys.argv[1])
import torch
from agents.steps import Steps
from agents.torch import tracing

steps = Steps(_thread.get_ident())
tick, stop = steps.listen("optimizer")
tracer, call = tracing.TorchTracer(steps.main_call), steps.main_call
def accepts(patience):
    tracing.WITHOUT_STEPS_NS = patience
    tracer.start(10**9)
    assert not tracer.has_begun()
    accepted = bool(call.pending_for_batches)
    tracer.abort()
    return accepted
tracer.check()
assert [accepts(10**12), accepts(-1), accepts(10**12)] == [False, True, True]
tracer.check()
assert not accepts(10**12)
print("alive")
"""


def test_the_windows_of_one_trace_wait_once_for_a_step_that_does_not_come() -> None:
    command = [sys.executable, "-c", WITHOUT_STEPS, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]
