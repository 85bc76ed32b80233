"""Record what the documents show of a live job: attach, diagnose, change a line, compare.

The job is the demo of a loader that starves the device, under the name that a user's script would
have. Record it on a machine that does nothing else; `walk.json` keeps what was printed, and cog
puts it into README.md and docs/.

Run: .venv/bin/python benchmarks/record_walk.py [--seconds 30]
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from whyidle.monitor.demo.pairs import SIDES, named

ROOT = Path(__file__).resolve().parent.parent
PAIR = named("input_starved", "torch")
INTO = ROOT / "benchmarks" / "walk.json"
# A short path, of no machine in particular. It is made here, and refused where it exists.
AT = Path("/tmp/job")
SCRIPT = "train.py"
IMPORTS_SECONDS = 6.0


@contextmanager
def training(source: str) -> Iterator[int]:
    """Run one side of the pair as a job of its own; yield its pid."""
    (AT / SCRIPT).write_text(source)
    # By the name that a user would type; the path of this Python is nobody's business.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = subprocess.Popen(
        ["python", SCRIPT, "--seconds", "600"],
        env={**os.environ, "PATH": path}, cwd=AT, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(IMPORTS_SECONDS)
        yield job.pid
    finally:
        job.terminate()
        job.wait()


def printed(state: Path, *command: str) -> str:
    """Return what a command of the monitor prints, on both streams in their order."""
    done = subprocess.run(
        [sys.executable, "-m", "whyidle.monitor", *command],
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state), "COLUMNS": "90", "PYTHONUTF8": "1"},
        cwd=AT, text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.rstrip()


def walk(seconds: float) -> dict[str, str]:
    """Go the whole way once, and return what was printed at each step."""
    before, after = map(PAIR.text, SIDES)
    shown = {}
    limit = ("--for", f"{seconds:g}", "--label")
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with training(before) as pid:
            shown["doctor"] = of_the_job(printed(state, "doctor", str(pid)))
            shown["attach"] = printed(state, "attach", str(pid), *limit, "before")
        shown["diagnose"] = printed(state, "diagnose", "before")
        with training(after) as pid:
            shown["attach_after"] = printed(state, "attach", str(pid), *limit, "after", "--quiet")
        shown["compare"] = printed(state, "compare", "before", "after")
    old, new = (side.splitlines()[4:] for side in (before, after))
    changes = list(difflib.unified_diff(old, new, lineterm="", n=0))[3:]
    shown["change"] = "\n".join(changes)
    return shown


def of_the_job(checks: str) -> str:
    """Return those lines of `monitor doctor` that are about the job, not about this machine."""
    lines = checks.splitlines()
    first = next(n for n, line in enumerate(lines) if line[6:].startswith("job "))
    return "\n".join(lines[first:])


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    """Record it, and keep it where the documents read it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--seconds", type=float, default=30.0)
    given = asked.parse_args()
    AT.mkdir(mode=0o700)
    try:
        shown = walk(given.seconds)
    finally:
        shutil.rmtree(AT)
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": processor(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    INTO.write_text(json.dumps({"machine": machine, "shown": shown}, indent=1) + "\n")
    print(f"{INTO.relative_to(ROOT)}: {len(shown)} outputs")


if __name__ == "__main__":
    main()
