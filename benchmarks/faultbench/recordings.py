"""Watch a case as a user would, and keep all that was recorded, compressed.

The store, which holds what was read from each trace, stands in the repository: rules are judged on
it. The files of the traces, which only a changed reader needs, stay on the machine.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.faultbench.cases import Case
from benchmarks.faultbench.jobs import JOBS, Job, Runs, running

# The job is warm when somebody comes to look.
ALONE_S: Final = 10.0
# What a user would do instead, right after: the same program, the same machine.
PY_SPY_S: Final = 10
NAME: Final = "{}.tar.xz"
TRACES: Final = "{}.traces.tar.xz"
# The disk space that a store keeps for bad times, and its index in memory.
_LEFT_OUT: Final = ("-ballast", "-shm", "-wal")


def record(case: Case, into: Path) -> dict[str, Any]:
    """Run a case, attach to it, and keep the recording; return what was seen of the job."""
    with tempfile.TemporaryDirectory(prefix="whyidle-case-") as state, running(case) as job:
        began = time.monotonic()
        while time.monotonic() - began < ALONE_S:
            job.check()
            time.sleep(0.2)
        seen = _watched(job, case.watched_s, Path(state))
        seen["py_spy"] = py_spy(job)
        seen["lines"] = job.lines
        seen["output"] = (job.folder / "output").read_text(errors="replace")[-400:]
        into.mkdir(parents=True, exist_ok=True)
        (Path(state) / "case.json").write_text(json.dumps(seen))
        keep(Path(state), into, case.id)
    return seen


def _watched(job: Job, seconds: int, state: Path) -> dict[str, Any]:
    line = ["attach", str(job.pid), "--for", str(seconds), "--json", "-q"]
    attached_at = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "whyidle.monitor", *line],
        env={**os.environ, "WHYIDLE_STATE_DIR": str(state)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    time.sleep(1)
    return {
        "attached_at": attached_at,
        "exit": done.returncode,
        "stderr": done.stderr[-600:],
        # Whoever attaches must harm nothing: it still runs.
        "unharmed": job.is_running,
        "load": os.getloadavg()[0],
    }


def py_spy(job: Runs) -> list[tuple[str, int, int]]:
    """Return the lines of the user's that py-spy saw the main thread at, the hottest first."""
    spy = Path(sys.executable).with_name("py-spy")
    with tempfile.NamedTemporaryFile(suffix=".txt") as out:
        line = ["record", "-p", str(job.pid), "-d", str(PY_SPY_S), "-r", "50", "-f", "raw"]
        # Of a process that only waits for its ranks it would see that.
        line += ["--subprocesses"] if job.starts_ranks else []
        subprocess.run([spy, *line, "-o", out.name], capture_output=True, check=False)
        text = Path(out.name).read_text(errors="replace")
    seen: dict[tuple[str, int], int] = {}
    for row in text.splitlines():
        frames, _, count = row.rpartition(" ")
        for frame in reversed(frames.split(";")):
            place = frame.rpartition("(")[2].rstrip(")")
            file, _, number = place.rpartition(":")
            if file and number.isdigit() and (job.folder / file).exists():
                seen[file, int(number)] = seen.get((file, int(number)), 0) + int(count)
                break
    return sorted(((f, n, count) for (f, n), count in seen.items()), key=lambda x: -x[2])[:10]


def keep(state: Path, into: Path, name: str) -> None:
    """Keep the store of a recording, and its traces beside it."""
    files = sorted(path for path in state.rglob("*") if path.is_file())
    traces = [path for path in files if path.parent.name == "traces"]
    store = [p for p in files if p not in traces and not p.name.endswith(_LEFT_OUT)]
    _pack(state, store, into / NAME.format(name))
    _pack(state, traces, into / TRACES.format(name))


def _pack(folder: Path, files: Iterable[Path], path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for file in files:
            tar.add(file, arcname=str(file.relative_to(folder)))
    path.write_bytes(packed.getvalue())


@contextmanager
def opened(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Unpack a recording while the block runs; yields its store and what was seen of the job."""
    with tempfile.TemporaryDirectory(prefix="whyidle-case-") as folder:
        with tarfile.open(path) as tar:
            tar.extractall(folder, filter="data")
        seen: dict[str, Any] = json.loads((Path(folder) / "case.json").read_text())
        yield Path(folder) / "whyidle.db", seen


__all__ = ["JOBS", "opened", "record"]
