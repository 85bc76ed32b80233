"""What a report shows, whichever way it is written."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.code.source import LARGEST
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, PlaceJson
from whyidle.monitor.processes import open_as
from whyidle.monitor.processes.open_as import User
from whyidle.monitor.processes.secrets import mask_text
from whyidle.monitor.render import numbers
from whyidle.monitor.render.places import Repository, homeless
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.window import Window

# Lines of code before and after the one in question, and of how many places of a finding.
AROUND: Final = 3
LONGEST_LINE: Final = 160
MOST_CODE: Final = 2
_FACTS: Final = ("autocast", "parameters", "batch_size")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Some lines of the user's code."""

    first: int
    lines: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Report:
    """All that is in it."""

    answer: DiagnosisJson
    environment: Mapping[str, str]
    repository: Repository
    host: HostAccount | None
    # The middle step, in ns; ``None``: not known.
    step_ns: float | None
    # By file and line.
    code: Mapping[tuple[str, int], Excerpt]
    # How long the threads were looked at that are judged, without start-up.
    seconds: float = 0.0

    @classmethod
    def of(
        cls, window: Window, answer: DiagnosisJson, summary: RunSummary | None, *, code: bool = True
    ) -> Report:
        """Make one of a window and what the rules said of it; a trace file has no summary."""
        user = None if summary is None else summary.run.user
        places = [p for f in answer.findings for p in f.where[:MOST_CODE]] if code else []
        return cls(
            answer,
            dict(_environment(window, summary)),
            Repository.here(),
            window.host,
            None if window.step_s is None else window.step_s.value * 1e9,
            {
                (place.file, place.line): found
                for place in places
                if (found := excerpt(place, user)) is not None
            },
            window.job.seconds * _looked(window),
        )

    def path(self, file: str) -> str:
        """Return a path as others may see it: in the repository, or below the home folder."""
        return self.repository.shown(file)


def _looked(window: Window) -> float:
    """Return what part of the time the account of the host is of."""
    host, whole = window.host, window.job.stacks.samples
    return host.samples / whole if host is not None and whole else 1.0


def excerpt(place: PlaceJson, user: str | None, around: int = AROUND) -> Excerpt | None:
    """Return the code around a line, masked; none of a file that the job's user may not read."""
    file, line = place.file, place.line
    if line < 1 or not file.endswith(".py") or not Path(file).is_absolute():
        return None
    try:
        who = User.ourselves() if user is None else User.named(user)
        with os.fdopen(open_as.open_as(Path(file), who), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            lines = opened.read(LARGEST).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return None
    if line > len(lines):
        return None
    first = max(1, line - around)
    shown = lines[first - 1 : line + around]
    masked = (mask_text(each.expandtabs(4))[:LONGEST_LINE] for each in shown)
    return Excerpt(first, tuple(masked), line)


def _environment(window: Window, summary: RunSummary | None) -> Iterator[tuple[str, str]]:
    """Yield what the job ran in; no user and no host: a report is shown to others."""
    if summary is not None:
        yield from _of_run(summary)
    models = [gpu.name for gpu in window.gpus if gpu.name]
    if models:
        yield "GPUs", ", ".join(f"{models.count(n)}x {n}" for n in dict.fromkeys(models))
    elif window.device is not None:
        yield "computes on", window.device.upper()
    for name in _FACTS:
        if value := window.fact(name):
            yield name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)
    if window.budget_source:
        yield "account by", window.budget_source


def _of_run(summary: RunSummary) -> Iterator[tuple[str, str]]:
    run, steps = summary.run, summary.trained.steps
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.started_ms / 1000))
    known = {
        "command": None if run.command is None else mask_text(homeless(run.command)),
        "recorded": f"{started}, {numbers.duration(summary.seconds)}",
        "framework": run.framework,
        "Python": run.python,
        "steps": None if steps is None else f"{steps:,}",
        "ended": run.end_reason or "not yet",
    }
    yield from ((name, value) for name, value in known.items() if value)
