"""What the recordings that run say of their jobs at this moment, for the lists of jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store import Reader

# A recorder that stores nothing for so long says nothing of now.
STALE_MS: Final = round(1000 * A_MINUTE_S)


@dataclass(frozen=True, slots=True)
class Now:
    """One recording."""

    run: int
    steps_per_s: float | None
    finding: Mapping[str, Any] | None


def recorded_now(store: Path) -> dict[int, Now]:
    """Return by pid what is known of each process that is recorded; raises a ``StorageProblem``."""
    found: dict[int, Now] = {}
    if not store.exists():
        return found
    oldest_ms = time.time() * 1000 - STALE_MS
    with Reader.open(store) as reader:
        for run in reader.unended():
            if not run.is_recording or run.target_pid is None:
                continue
            latest = reader.latest(run.id, (Scope.JOB,)).items()
            steps = [v.value for k, v in latest if k.metric is m.JOB_STEPS and v.ts_ms > oldest_ms]
            now = Now(run.id, steps[0] if steps else None, reader.worst_finding(run.id))
            members = (each["pid"] for each in (run.info or {}).get("processes", ()))
            found |= dict.fromkeys((run.target_pid, *members), now)
    return found
