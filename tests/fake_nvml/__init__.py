"""A libnvidia-ml.so.1 that plays a tape, so that the real binding runs without a GPU.

README.md describes the tape.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARY = "libnvidia-ml.so.1"
FLAGS = (
    "-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -pthread"
)


def build(folder: Path) -> Path:
    """Compile the library into a folder; the answer goes into LD_LIBRARY_PATH."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        msg = "the fake NVML needs a C compiler; install one: apt-get install gcc libc6-dev"
        raise RuntimeError(msg)
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    output = str(folder / LIBRARY)
    done = subprocess.run(
        [compiler, *FLAGS.split(), "-o", output, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        msg = f"{compiler} failed (apt-get install libc6-dev brings headers):\n{done.stderr}"
        raise RuntimeError(msg)
    return folder


def environment(
    library: Path,
    tape: Path,
    *,
    calls: Path | None = None,
    epoch: float | None = None,
    **pids: int | Path,
) -> dict[str, str]:
    """Variables to set for a process that shall find the library and play the tape.

    Args:
        library: The folder that build() answered.
        tape: The tape to play.
        calls: Where the library shall leave its table of calls.
        epoch: Time zero of the tape, in seconds of CLOCK_MONOTONIC; otherwise the first nvmlInit.
        **pids: What $NAME in the tape stands for: a pid, or a file that will hold one.
    """
    searched = [str(library), os.environ.get("LD_LIBRARY_PATH", "")]
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, searched)),
        "WHYIDLE_NVML_TAPE": str(tape),
    }
    if calls is not None:
        variables["WHYIDLE_NVML_CALLS"] = str(calls)
    if epoch is not None:
        variables["WHYIDLE_NVML_EPOCH"] = repr(epoch)
    for name, pid in pids.items():
        value = f"@{pid}" if isinstance(pid, Path) else str(pid)
        variables[f"WHYIDLE_TAPE_{name.upper()}"] = value
    return variables


def count_calls(calls: Path) -> dict[str, int]:
    """Read the table of calls: how often each function was called."""
    lines = (line.split() for line in calls.read_text().splitlines())
    return {name: int(count) for name, count in lines}
