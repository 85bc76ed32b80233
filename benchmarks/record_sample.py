"""Record the runs that ``monitor dashboard --sample`` shows: real ones, of demos as they come.

Each program runs under ``monitor run`` in a folder of its own, so that the paths in the sample are
short and of no machine in particular; the page finds their source among the demos. Record it on a
machine that does nothing else.

Run: .venv/bin/python benchmarks/record_sample.py [--seconds 60]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from whyidle.dashboard.sample import FIRST
from whyidle.monitor.demo.pairs import text_of
from whyidle.monitor.store import copy

ROOT = Path(__file__).resolve().parent.parent
DEMOS = ROOT / "demo_workloads"
INTO = ROOT / "dashboard" / "recorded" / "whyidle.db"
# As the runs have it; ``dashboard/views/source.py`` finds the demos by their names.
AT = Path("/tmp/job")
FIRST_TRACE_SECONDS = 8.0
# Which of them is shown first, its label says (``dashboard/sample.py``).
RUNS = (
    (FIRST, "unjitted_step/before_jax.py"),
    ("JAX, compiled", "unjitted_step/after_jax.py"),
    ("loader mended", "input_starved/after_torch.py"),
    ("loader starves it", "input_starved/before_torch.py"),
)


def record(label: str, script: str, seconds: float, state: Path) -> None:
    """Record one program."""
    monitor = [sys.executable, "-m", "whyidle.monitor", "run", "--quiet", "--label", label]
    job = ["python", script, "--seconds", f"{seconds:g}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # It runs in another folder.
    known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    found = os.pathsep.join(str(Path(each).absolute()) for each in known)
    subprocess.run(
        [*monitor, "--first-trace", f"{FIRST_TRACE_SECONDS:g}", "--", *job],
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state), "PATH": path, "PYTHONPATH": found},
        cwd=AT,
        check=True,
    )


def record_all(seconds: float, into: Path) -> None:
    """Record all programs; write a compact copy of the store."""
    AT.mkdir(mode=0o700)
    try:
        for _, script in RUNS:
            (AT / script).parent.mkdir(exist_ok=True)
            (AT / script).write_text(text_of(DEMOS / script))
        with tempfile.TemporaryDirectory() as state:
            for label, script in RUNS:
                record(label, script, seconds, Path(state))
            into.parent.mkdir(exist_ok=True)
            into.unlink(missing_ok=True)
            copy(Path(state) / "whyidle.db", into)
        into.chmod(0o644)
    finally:
        shutil.rmtree(AT)


def main() -> None:
    """Put the recording where the dashboard finds it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--seconds", type=float, default=60.0)
    record_all(asked.parse_args().seconds, INTO)
    print(f"{INTO.relative_to(ROOT)}: {INTO.stat().st_size / 1e6:.1f} MB, {len(RUNS)} runs")


if __name__ == "__main__":
    main()
