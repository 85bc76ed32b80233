"""NVML on tape: gpu_record.py goes through its phases; what it found beside the notes is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_checks.room import Failed, LeftOut, Part, Room, tail
from tests import fake_nvml

SECONDS = 100
PHASE_SECONDS, QUICK_PHASE_SECONDS = 8.0, 0.5
RECORDER = Path(__file__).resolve().parent.parent / "gpu_record.py"
TAPE = Path(fake_nvml.__file__).parent.parent / "data" / "tapes" / "one_gpu.tape"


def run(room: Room) -> None:
    """Record, and keep the tape."""
    room.do("NVML tape", lambda part: _record(room, part))


def _record(room: Room, part: Part) -> None:
    seconds = QUICK_PHASE_SECONDS if room.quick else PHASE_SECONDS
    out, pids = room.folder / "nvml", room.folder / "pids"
    pids.mkdir()
    command = [sys.executable, str(RECORDER), "--out", str(out), "--pids", str(pids)]
    command += ["--seconds-per-phase", f"{seconds:g}"]
    environment = dict(os.environ)
    if not room.gpu:
        command += ["--allow-idle", "--hz", "5"]
        environment |= _fake(room.folder, pids)
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=max(room.left, 1.0),
        check=False,
    )
    print(done.stdout, done.stderr)
    if done.returncode:
        raise Failed(f"gpu_record.py ended with {done.returncode}: {tail(done.stderr)}")
    (made,) = out.glob("*/nvml.json")
    _tell(json.loads(made.read_text()), part)
    part.files = [str((made.parent / name).relative_to(room.folder)) for name in _KEPT]
    if room.gpu and not part.figures["loaded"]:
        raise Failed("no framework here sees the GPU, so the tape has no load")


_KEPT = ("nvml.tape", "nvml.json")


def _tell(document: dict[str, Any], part: Part) -> None:
    """Tell the figures of the recording, and where the driver is not as the notes say."""
    costs = {
        name: function["all"]["median_us"]
        for name, function in document["functions"].items()
        # It waits for an event, on a thread of its own.
        if "Wait" not in name
    }
    slowest = max(costs, key=lambda name: float(costs[name]))
    part.figures = {
        "loaded": document["loaded"],
        "tape_bytes": document["tape_bytes"],
        "slowest_call": slowest,
        "slowest_call_median_us": costs[slowest],
        "findings": document["findings"],
        "differs": [f["question"] for f in document["findings"] if f["differs"]],
    }


def _fake(folder: Path, pids: Path) -> dict[str, str]:
    """Return the environment in which the tests' library plays a tape."""
    try:
        (folder / "library").mkdir()
        library = fake_nvml.build(folder / "library")
    except RuntimeError as missing:
        raise LeftOut(str(missing)) from None
    files = {name: pids / name for name in ("TRAINER", "NEIGHBOUR")}
    return fake_nvml.environment(library, TAPE, **files)
