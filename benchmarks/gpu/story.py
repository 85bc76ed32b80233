"""A Flax job at a few percent of its GPU, as its user meets it: attach, the finding, the fix."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.runner import Check, Failed, Result, monitor, need
from whyidle.monitor.demo.pairs import SIDES, Pair, all_pairs

PAIRS: Final = Path(__file__).with_name("pairs")
JOB: Final = "flax_job"
WATCH_SECONDS, QUICK_WATCH_SECONDS = 14, 6
# Of the program, which is ended before.
RUNS_SECONDS: Final = "120"
STARTS_SECONDS: Final = 12.0


def story(check: Check) -> None:
    """Attach to the job before its fix and after it."""
    (pair,) = (pair for pair in all_pairs(PAIRS) if pair.name == JOB)
    for side in SIDES:
        check.do(f"{JOB}, {side}", _attached, pair, side)


def _attached(check: Check, part: Result, pair: Pair, side: Any) -> None:
    """Start one side, and attach to it once it trains."""
    need("flax")
    command = [sys.executable, str(pair.script(side)), "--seconds", RUNS_SECONDS]
    seconds = QUICK_WATCH_SECONDS if check.quick else WATCH_SECONDS
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as job:
        try:
            time.sleep(STARTS_SECONDS)
            summary, _ = monitor("attach", str(job.pid), "--for", str(seconds), "--json")
        finally:
            job.send_signal(signal.SIGKILL)
    (gpu,) = summary["gpus"] or [{}]
    part.figures = {
        "attached": summary["attached"],
        "steps": summary["steps"],
        "gpu": {name: each["mean"] for name, each in gpu.items()
                if isinstance(each, dict) and "mean" in each},
        "findings": [
            {"rule": each["rule"], "severity": each["severity"], "speedup": each["speedup"],
             "lines": [f"{Path(at['file']).name}:{at['line']}" for at in each["where"]]}
            for each in summary["findings"]
        ],
    }  # fmt: skip
    top = next((each["rule"] for each in summary["findings"]), None)
    if check.gpu and side == "before" and top not in pair.faults:
        raise Failed(f"{top or 'nothing'} stands first before the fix")
