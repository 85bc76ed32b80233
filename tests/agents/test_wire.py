from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whyidle.agents.wire import clock_pair

AGENTS = Path(__file__).parent.parent.parent / "agents"
OTHERS = [f"python3.{minor}" for minor in range(9, 15)]


def test_both_clocks_are_read_at_one_moment() -> None:
    before, pair, after = time.monotonic_ns(), clock_pair(), time.monotonic_ns()
    assert before <= pair.monotonic_ns <= after
    assert 0 <= pair.error_ns < 1_000_000_000
    # Both name the same moment: the distance between the clocks is the machine's own.
    distance = time.time_ns() - time.monotonic_ns()
    assert abs(pair.realtime_ns - pair.monotonic_ns - distance) < 1_000_000_000


def interpreters() -> list[str]:
    """Return the other Pythons of this machine that a job may run on."""
    home = Path.home() / ".pyenv" / "versions"
    found = [shutil.which(name) for name in OTHERS]
    found += [
        str(p) for minor in range(9, 15) for p in sorted(home.glob(f"3.{minor}.*/bin/python3"))
    ]
    # A shim only says that its version is not the chosen one.
    return [f for f in found if f is not None and "/shims/" not in f] or [sys.executable]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.split("/")[-3])
def test_the_agent_loads_on_the_pythons_of_jobs(python: str) -> None:
    source = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('_private', {str(AGENTS / 'wire.py')!r})\n"
        "module = importlib.util.module_from_spec(spec)\nsys.modules['_private'] = module\n"
        "spec.loader.exec_module(module)\nprint(module.clock_pair().error_ns >= 0)"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", source], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr
