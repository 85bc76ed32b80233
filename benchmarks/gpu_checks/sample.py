"""The runs that `monitor dashboard --sample` shows, recorded on this machine's GPU."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import record_sample

from gpu_checks.jobs import check_installed
from gpu_checks.room import Failed, LeftOut, Part, Room
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import copy

SECONDS = 330
RUN_SECONDS, QUICK_RUN_SECONDS = 45.0, 12.0


def run(room: Room) -> None:
    """Record all runs into one store."""
    room.do("the dashboard's sample", partial(_record, room))


def _record(room: Room, part: Part) -> None:
    seconds = QUICK_RUN_SECONDS if room.quick else RUN_SECONDS
    for framework in ("jax", "torch"):
        check_installed(framework)
    state = room.folder / "state"
    folder: Path = record_sample.AT
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise LeftOut(f"{folder} is there already, and is not ours: remove it") from None
    try:
        for label, script in record_sample.RUNS:
            (folder / script).parent.mkdir(exist_ok=True)
            shutil.copy(record_sample.DEMOS / script, folder / script)
            record_sample.record(label, script, seconds, state)
    finally:
        shutil.rmtree(folder)
    copy(state / DATABASE, room.folder / DATABASE)
    size = (room.folder / DATABASE).stat().st_size
    part.figures = {"runs": [label for label, _ in record_sample.RUNS], "bytes": size}
    part.files = [DATABASE]
    if not size:
        raise Failed("the store is empty")
