"""The programs that are traced by their own profiler: run once, for every check that reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_checks.jobs import check_device, check_installed
from gpu_checks.room import Failed, Room, tail

PROGRAM = Path(__file__).with_name("programs.py")
FILES = {"torch": "trace.json", "jax": "trace.xplane.pb"}
PATIENCE = 90.0


def profiled(room: Room, framework: str) -> tuple[dict[str, Any], Path]:
    """Return what the profiler says itself, and its trace."""
    check_installed(framework)
    folder = room.folder.parent / f"profiled-{framework}"
    if not (folder / "told.json").exists():
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), framework, str(folder)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        print(done.stdout, done.stderr)
        if done.returncode:
            raise Failed(f"the program died with code {done.returncode}: {tail(done.stderr)}")
    told: dict[str, Any] = json.loads((folder / "told.json").read_text())
    check_device(told, gpu=room.gpu)
    return told, folder / FILES[framework]
