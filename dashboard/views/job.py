"""The shown run: its state, its GPUs and processes, and the account of its time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.dashboard.views.series import Subject
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.contracts.trace import AccountJson, BudgetJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.diagnosis.needs import why_no_budget
from whyidle.monitor.runs.estimate import BACKENDS, Device
from whyidle.monitor.runs.summary import Watched, in_order, subjects
from whyidle.monitor.runs.training import trained
from whyidle.monitor.signals import opening
from whyidle.monitor.store import Gpu, Reader, Run
from whyidle.monitor.store.identity import Recorder

NONE_READ: Final = "no GPU was read in this run"
ESTIMATE: Final = "estimate"
ONLY_A_TRACE: Final = "only a trace shows it: no counter says how busy the device is"
NOTHING: Final = "no measurement shows it"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs to show, or why there are none."""

    shown: tuple[Subject, ...]
    # The job's GPUs: only their idle time is its own.
    mine: tuple[Subject, ...]
    others: int
    how: str
    problem: str | None = None
    rows: tuple[Gpu, ...] = ()

    @property
    def names(self) -> str:
        """How many of which kind are shown."""
        kinds = ", ".join(sorted({gpu.name or "GPU" for gpu in self.rows}))
        return f"{len(self.rows)} x {kinds}" if len(self.rows) > 1 else kinds

    def one(self, index: str | None) -> tuple[Subject, ...]:
        """Return the GPU of that index, or all shown GPUs if there is none."""
        found = tuple(s for s, g in zip(self.shown, self.rows, strict=True) if g.idx == index)
        return found or self.shown


def gpus(reader: Reader, run: Run, *, everything: bool) -> Gpus:
    """Return the job's GPUs, or all GPUs of the machine."""
    info = run.info or {}
    found = reader.gpus(run.id)
    mine = [gpu for gpu in found if gpu.idx in info.get("gpus", ())] or found
    shown = found if everything else mine
    problem = info.get("gpu_problem")
    if not found and not problem:
        problem = NONE_READ
    return Gpus(
        shown=tuple(_subject(gpu) for gpu in shown),
        mine=tuple(_subject(gpu) for gpu in mine),
        others=len(found) - len(shown),
        how=str(info.get("gpus_how", "")),
        problem=problem,
        rows=tuple(shown),
    )


def _subject(gpu: Gpu) -> Subject:
    return Subject(gpu.id, f"GPU {gpu.idx}")


def state(run: Run) -> str:
    """Return whether a run is still going, or how it ended, in a few words."""
    if run.is_recording:
        return "recording"
    if run.ended_ms is not None:
        return run.end_reason or "ended"
    recorder = Recorder(
        run.host, run.boot_id, run.recorder_namespace, run.recorder_pid, run.recorder_start_ticks
    )
    # A recorder on another machine or in a container cannot be checked.
    return "its recorder was killed" if recorder.lives() is False else "its recorder is elsewhere"


def device(run: Run, *, has_gpus: bool) -> Device | None:
    """Return what the job computes on: as its frameworks report, else a GPU if one is known."""
    training = trained((each.frameworks, each.counted) for each in in_order(run))
    return BACKENDS.get(training.backend or "") or ("gpu" if has_gpus else None)


@dataclass(frozen=True, slots=True)
class Trainer:
    """A training process; the store may have several subjects for it, one after the other."""

    name: str
    subjects: tuple[Subject, ...]


def trainers(reader: Reader, run: Run, most: int = 8) -> list[Trainer]:
    """Return the training processes, the principal one first; data loader workers do not count."""
    order = in_order(run)
    stepping = [each for each in order if each.counted is not None and each.counted.steps]
    by_name: dict[str, list[Watched]] = {}
    for watched in stepping or order[:1]:
        name = f"pid {watched.pid}" if watched.rank is None else f"rank {watched.rank}"
        by_name.setdefault(name, []).append(watched)
    found = []
    for name, some in list(by_name.items())[:most]:
        # A restarted rank continues the earlier one: the newest process comes last.
        some.sort(key=lambda watched: watched.start_ticks or 0)
        there = tuple(Subject(i, name) for each in some for i in subjects(reader, run, each))
        if there:
            found.append(Trainer(name, there))
    return found


def standing(reader: Reader, run: Run) -> tuple[object, ...]:
    """Return a key that changes whenever answers about a run may change."""
    return run.is_recording, run.ended_ms, run.label, reader.newest_trace(run.id)


def account(store: Path, run: int, seconds: float | None) -> tuple[BudgetJson | None, str]:
    """Return where the time of the last seconds went and its source; or why it is unknown."""
    window = opening.of_run(store, str(run), seconds)
    if window.budget is None:
        return None, why_no_budget(window)
    return window.budget, window.budget_source or ""


def diagnosis(store: Path, run: int, seconds: float | None = None) -> DiagnosisJson:
    """Return the answer of ``monitor diagnose``, for the last seconds if wanted."""
    return diagnose.as_json(diagnose.diagnose(opening.of_run(store, str(run), seconds)))


def known_compute(
    budget: AccountJson | None, source: str | None, *, counted: bool
) -> tuple[float | None, str]:
    """Return the share of compute and its source; if it is unknown, ``None`` and why.

    ``counted``: a counter shows how busy the job's GPUs are. Without one, an estimate contains
    no compute at all, which is not a measured zero.
    """
    slices = budget["slices"] if budget else {}
    total = sum(slices.values())
    if not total:
        return None, NOTHING
    compute = slices.get(Slice.COMPUTE, 0)
    if source == ESTIMATE and not compute and not counted:
        return None, ONLY_A_TRACE
    return compute / total, f"by {source}" if source else ""
