"""What shows in a trace alone: how many compiled functions a step calls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.agents.jax.jobs import JAX, run
from whyidle.monitor.traces.loading import load

STEPS = 5
SOURCE = f"""
import programs, jax
from jax._src.lib import _profiler
step = programs.NAME(FAULT)
step(0); step(1); attach()
options = jax.profiler.ProfileOptions(); options.python_tracer_level = 0
session = _profiler.ProfilerSession(options)
for i in range({STEPS}): step(i)
with open(PARENT + "/trace.xplane.pb", "wb") as file: file.write(session.stop())
"""


def calls(name: str, fault: bool, folder: Path) -> float:
    """Return the outermost calls of compiled functions per step."""
    folder.mkdir()
    run(SOURCE.replace("NAME", name).replace("FAULT", str(fault)), folder, JAX)
    trace = load(folder / "trace.xplane.pb")
    ends: Counter[int] = Counter()
    found = 0
    rows = zip(trace.host.start, trace.host.end, trace.host.thread, trace.host.name, strict=True)
    for start, end, thread, label in rows:
        if trace.names[label].startswith("PjitFunction") and start >= ends[int(thread)]:
            ends[int(thread)] = int(end)
            found += 1
    return found / STEPS


@pytest.mark.parametrize(("name", "least"), [("eager", 10), ("loop", 20), ("twice", 1.4)])
def test_a_step_calls_more_than_it_should(name: str, least: float, tmp_path: Path) -> None:
    before = calls(name, True, tmp_path / "before")
    after = calls(name, False, tmp_path / "after")
    assert after >= 1
    assert before > least * after, (before, after)
