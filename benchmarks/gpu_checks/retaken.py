"""A trace of a demo by hand, where none came by itself or none that is small enough to keep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from whyidle.monitor.core.paths import database
from whyidle.monitor.tracing.space import Space

TRACE_SECONDS = 0.5
LEAST_SECONDS = 0.02
# Beside the program's start; a try takes about a second.
PATIENCE = 40.0
TRACE_PATIENCE = 30.0
# The first one that comes may be of a program that still compiles.
WARM = 1

Packed = Callable[[Path], bytes]


def trace_of(script: Path, packed: Packed, most: int) -> tuple[bytes, str] | None:
    """Run a program alone and trace it until it is warm and the trace is small enough."""
    command = [sys.executable, str(script), "--seconds", f"{PATIENCE + TRACE_PATIENCE:g}"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    ) as job:
        try:
            return until_small(job, packed, most)
        finally:
            # With what it has started: workers of a loader.
            os.killpg(job.pid, signal.SIGKILL)


def until_small(
    job: subprocess.Popen[bytes], packed: Packed, most: int
) -> tuple[bytes, str] | None:
    """Trace a program again and again, for less time where the last one was too large."""
    until, seconds, seen = time.monotonic() + PATIENCE, TRACE_SECONDS, 0
    while job.poll() is None and time.monotonic() < until and seconds > LEAST_SECONDS:
        path = taken(job.pid, seconds)
        if path is None:
            continue
        seen += 1
        text = packed(path)
        if len(text) > most:
            seconds *= 0.8 * most / len(text)
        elif seen > WARM:
            return text, path.name
    return None


def taken(pid: int, seconds: float) -> Path | None:
    """Take one trace; ``None``: not yet."""
    line = ["trace", str(pid), "--seconds", f"{seconds:g}", "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "whyidle.monitor", *line],
        capture_output=True,
        text=True,
        timeout=TRACE_PATIENCE,
        check=False,
    )
    # Its framework is not there yet, or nothing ran.
    if done.returncode or not json.loads(done.stdout)["devices"]:
        return None
    mine = [file for file in Space(database()).files() if file.path.name.startswith(f"pid-{pid}-")]
    return mine[-1].path if mine else None
