"""Blocks of the job's own that were open at the end of a trace, in files as PyTorch writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whyidle.agents.torch import unfinished_blocks
from whyidle.agents.torch.unfinished_blocks import unfinished_block

pytest.importorskip("torch")

# One process writes all of the files: each begins and ends as the agent's own do.
WRITER = """
import sys, torch
from torch._C._autograd import _prepare_profiler, _enable_profiler, _disable_profiler
from torch._C._profiler import (
    ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig)
from torch.profiler import record_function
folder = sys.argv[1]
def trace(name, work):
    more, kinds = _ExperimentalConfig(trace_only=True), {ProfilerActivity.CPU}
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, more, "")
    _prepare_profiler(config, kinds); _enable_profiler(config, kinds)
    left = work()
    _disable_profiler().save(f"{folder}/{name}")
    for block in reversed(left or []): block.__exit__(None, None, None)
def calculate(): torch.ones(8, 8) @ torch.ones(8, 8)
def open(*names):
    found = [record_function(name) for name in names]
    for block in found: block.__enter__(); calculate()
    return found
def whole(*names):
    for name in names:
        with record_function(name): calculate()
def short():
    whole("step", "step"); return open("step")
def optimizer():
    whole("Optimizer.zero_grad#SGD.zero_grad"); return open("Optimizer.step#SGD.step")
def steps_in_epoch():
    found = open("epoch 3"); whole("step", "step"); return found + open("step")
def twice_open(): return open("epoch", "epoch")
def other_letters():
    whole("\\u00e9toile"); return open("\\u00e9poque")
def long():
    found = open("epoch 3")
    for _ in range(500): whole("step")
    return found
trace("none", calculate); trace("whole", lambda: whole("step")); trace("short", short)
trace("optimizer", optimizer); trace("epoch", lambda: open("epoch 3"))
trace("steps in epoch", steps_in_epoch); trace("twice open", twice_open)
trace("other letters", other_letters); trace("long", long)
trace("quoted", lambda: open('the "first" \\\\ of, "pid": 1'))
trace("again quoted", lambda: (whole('a "b"'), open('a "b"'))[1])
trace("quoted apart", lambda: (whole('a "b" c'), open('a "b"'))[1])
"""

FOUND = {
    "none": None,
    "whole": None,
    "short": None,
    "optimizer": None,
    "epoch": "epoch 3",
    "steps in epoch": "epoch 3",
    "twice open": "epoch",
    "other letters": "unknown",
    "long": "epoch 3",
    "again quoted": None,
    "quoted apart": 'a "b"',
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    subprocess.run(
        [sys.executable, "-c", WRITER, str(folder)], check=True, capture_output=True, timeout=60
    )
    return folder


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("piece", [1 << 20, 999])
def test_what_is_open_for_long_is_found(
    name: str, piece: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also where a piece of the file ends in the middle of an event.
    monkeypatch.setattr(unfinished_blocks, "_PIECE", piece)
    assert unfinished_block(str(files / name)) == FOUND[name]


def test_a_name_with_quotes_and_backslashes_is_found(files: Path) -> None:
    found = unfinished_block(str(files / "quoted"))
    assert found is not None
    assert found.startswith('the "first" ')
