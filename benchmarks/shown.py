"""What the documents show of the monitor: outputs of commands, for their cog blocks.

`ran` runs a command now, and `walked` reads what `record_walk.py` recorded of a live job.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALK = ROOT / "benchmarks" / "walk.json"
REAL = ROOT / "tests" / "data" / "traces" / "real" / "kineto"
LEFT_OUT = "  [...]"
# One line a second: the first that has a budget and the first after the trace are shown.
_TICK = re.compile(r" +[\d.]+ s \|")
_WORTH = ("time (estimate)", "time (trace")


def ran(*command: str, folder: Path = ROOT, until: str | None = None) -> str:
    """Return what a command prints in a folder, in a fence; `until` ends it before that line."""
    done = subprocess.run(
        [sys.executable, "-m", "whyidle.monitor", *command],
        env={"COLUMNS": "90", "PYTHONUTF8": "1"}, cwd=folder, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    lines = done.stdout.rstrip().splitlines()
    if until is not None:
        end = next(n for n, line in enumerate(lines) if line.startswith(until))
        lines = [*lines[:end], LEFT_OUT]
    return _fenced(f"$ monitor {' '.join(command)}", lines)


def walked(name: str, command: str = "", language: str = "", *, ending: bool = False) -> str:
    """Return what was recorded of a live job under this name, in a fence; or how that ends.

    In the command, BEFORE and AFTER stand for the pids of the job as it was and as it was changed.
    """
    outputs = json.loads(WALK.read_text())["shown"]
    for word, of in (("BEFORE", "attach"), ("AFTER", "attach_after")):
        pid = re.search(r", pid (\d+)[;,]", outputs[of])
        assert pid is not None, f"the summary of {of} names no pid"
        command = command.replace(word, pid[1])
    lines = _shortened(outputs[name].splitlines())
    if ending:
        last = max((n for n, line in enumerate(lines) if line == LEFT_OUT), default=0)
        lines = lines[last:]
    return _fenced(f"$ {command}" if command else "", lines, language)


def machine() -> str:
    """Return on what machine the live job was recorded."""
    on = json.loads(WALK.read_text())["machine"]
    return f"{on['cores']} cores ({on['cpu']}), no GPU, Python {on['python']}, {on['date']}"


def _shortened(lines: list[str]) -> list[str]:
    shown: list[str] = []
    wanted = list(_WORTH)
    for line in lines:
        if _TICK.match(line) and not (wanted and wanted[0] in line):
            if shown[-1] != LEFT_OUT:
                shown.append(LEFT_OUT)
            continue
        if _TICK.match(line):
            del wanted[0]
        shown.append(line)
    return shown


def _fenced(prompt: str, lines: list[str], language: str = "") -> str:
    return "\n".join([f"```{language}", *([prompt] if prompt else []), *lines, "```"])
