"""The job of ``benchmarks/agent_cost.py`` knows the agent from inside: it must not stay behind."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_job_of_the_benchmark_measures_every_part() -> None:
    job, agents = ROOT / "benchmarks" / "agent_cost_job.py", ROOT / "agents"
    line = [sys.executable, str(job), str(agents), "1", "2", "0"]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert found["pairs"]
    assert {"gc_ns", "sample_us", "second_us", "fork_us", "child_us"} <= set(found["parts"])
    # On a busy machine a part that costs next to nothing may come out as less.
    assert all(math.isfinite(value) for value in found["parts"].values())
