"""An agent that knows only the tools finds the fault of a demo, mends it, and measures the gain."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import agent_plays


@pytest.mark.ptrace
def test_an_agent_finds_mends_and_verifies(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    # In a thread of its own: where a browser was driven, ours has a loop already.
    with ThreadPoolExecutor(1) as pool:
        came = pool.submit(asyncio.run, agent_plays.play("input_starved", 25, tmp_path)).result()
    assert came["rule"] == "input_starved"
    assert "time.sleep" in came["line"]
    assert came["evidence"] >= 1
    assert came["patched"]
    assert came["verdict"] == "B is faster"
    # Workers that are as fast as they can be may still keep it waiting a little.
    is_gone = "input_starved" in came["gone"]
    assert is_gone or came["left"]["input_starved"] in {"low", "info"}
    low, _, high = came["measured"]
    assert 1 < low <= high
