"""Watch a program as a user would; keep the recording, and what happened to both meanwhile.

Ticks of the program and CPU time of the monitor's processes are read from outside four times a
second: what a moment of the monitor's costs the job is seen in the same moment.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.faultbench.recordings import keep, py_spy
from benchmarks.strangers.cases import Case
from benchmarks.strangers.jobs import PYTHON, Job
from whyidle.monitor.core.paths import DATABASE

# The job is warm when somebody comes to look, and is left alone for as long before and after.
WARM_STEPS: Final = 5
WARM_S: Final = 5.0
ALONE_S: Final = 2.0
LOOK_S: Final = 0.25
# Where the programs' Python lies, in a recording.
VENV: Final = "/venv"
# Where the folders of the programs lie, in a recording.
AT: Final = "/tmp/"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
# Seconds, ticks so far, seconds of CPU time of the monitor so far, and steps of the optimizer.
Look = tuple[float, int, float, int]


def record(case: Case, mirrors: Path | None, into: Path) -> dict[str, Any]:
    """Run a case, attach to it, and keep the recording; return what was seen of the job."""
    job = Job(case, mirrors)
    try:
        job.wait_for_steps(WARM_STEPS)
        time.sleep(WARM_S)
        with tempfile.TemporaryDirectory(prefix="whyidle-stranger-") as state:
            seen = _watched(job, case.watched_s, Path(state))
            seen["py_spy"] = py_spy(job)
            into.mkdir(parents=True, exist_ok=True)
            (Path(state) / "case.json").write_text(json.dumps(seen))
            rename(Path(state) / DATABASE, str(Path(PYTHON).absolute().parent.parent), VENV)
            rename(Path(state) / DATABASE, f"{tempfile.gettempdir()}/", AT)
            keep(Path(state), into, case.name)
    finally:
        job.end()
    return seen


def rename(store: Path, folder: str, name: str) -> None:
    """Write another name for a folder wherever a recording has it: it is this machine's alone."""
    with sqlite3.connect(store) as database:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        for (table,) in database.execute(tables).fetchall():
            for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                database.execute(
                    f'UPDATE "{table}" SET "{column}" = replace("{column}", ?1, ?2)'
                    f' WHERE typeof("{column}") = \'text\' AND instr("{column}", ?1)',
                    (folder, name),
                )
    database.close()


def _watched(job: Job, seconds: int, state: Path) -> dict[str, Any]:
    before = list(_looks(job, None, ALONE_S))
    line = ["attach", str(job.pid), "--for", str(seconds), "--json", "-q"]
    attached_at = time.time()
    with tempfile.TemporaryFile("w+") as out:
        monitor = subprocess.Popen(
            [sys.executable, "-m", "whyidle.monitor", *line],
            env={**os.environ, "WHYIDLE_STATE_DIR": str(state)},
            stdout=subprocess.DEVNULL, stderr=out,
        )  # fmt: skip
        meanwhile = list(_looks(job, monitor, 10.0 * seconds))
        out.seek(0)
        said = out.read()[-600:]
    after = list(_looks(job, None, ALONE_S))
    return {
        "attached_at": attached_at,
        "exit": monitor.returncode,
        "stderr": said,
        # Whoever attaches must harm nothing: it still runs.
        "unharmed": job.is_running,
        "before": before,
        "meanwhile": meanwhile,
        "after": after,
    }


def _looks(job: Job, monitor: subprocess.Popen[bytes] | None, most_s: float) -> Iterator[Look]:
    """Look at the job, and at the monitor as long as it runs."""
    began, taken = time.monotonic(), _Taken()
    while (now := time.monotonic() - began) < most_s:
        if monitor is not None and monitor.poll() is not None:
            break
        cpu = 0.0 if monitor is None else taken.by(monitor.pid)
        yield round(now, 3), job.counted()[0], round(cpu, 3), job.optimized()
        time.sleep(LOOK_S)


class _Taken:
    """CPU time of a process and of all that it starts, those that have ended included."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def by(self, pid: int) -> float:
        """Return the seconds so far."""
        for each in _family(pid):
            try:
                fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            self._known[each] = (int(fields[11]) + int(fields[12])) * _TICK_S
        return sum(self._known.values())


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))
