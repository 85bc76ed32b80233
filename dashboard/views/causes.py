"""The time of a step by cause, over time: as the counters and the agent have it, moment by moment.

Each moment is judged as the live view judges now (``estimate.running``); what only a trace can tell
apart stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard.views.courses import Course, Courses, Subject
from whyidle.dashboard.views.span import FEW_POINTS
from whyidle.monitor import metrics as m
from whyidle.monitor.estimate import ORDER, Device, running
from whyidle.monitor.metrics import Metric
from whyidle.monitor.reading import Reading
from whyidle.monitor.slices import Slice

_GPU: Final = (m.GPU_UTILISATION, m.GPU_SM_ACTIVITY)
# Agents tell of the last seconds every few ticks: meanwhile it stands.
_HOLDS_MS: Final = 6_000


@dataclass(frozen=True, slots=True)
class Causes:
    """For each moment how the time divides: seconds of a step, or shares where none is known."""

    times: Sequence[int]
    parts: Mapping[Slice, Sequence[float | None]]
    is_of_steps: bool
    # Why the steps are not known, or nothing at all.
    unknown: str | None = None


def causes(courses: Courses, gpus: Sequence[Subject], device: Device | None) -> Causes:
    """Return how the time of steps divides over the span; ``gpus`` are the job's own."""
    what = ("causes", tuple(gpus), device)
    return courses.once(what, lambda: _causes(courses, gpus, device))


def _causes(courses: Courses, gpus: Sequence[Subject], device: Device | None) -> Causes:
    job = [Subject(courses.run, "job")]
    told = [courses.of(metric, job, FEW_POINTS)[0] for metric in (m.JOB_STEP_P50, *ORDER.values())]
    cards = [courses.of(metric, gpus, FEW_POINTS) for metric in _GPU] if gpus else []
    steps = told[0]
    of_steps = steps.unknown is None
    moments = _by_time([*told, *(card for some in cards for card in some)])
    parts: dict[Slice, list[float | None]] = {part: [] for part in Slice}
    for values in moments.values():
        divided = _divided(values, gpus, device, of_steps=of_steps)
        for part in Slice:
            parts[part].append(None if divided is None else divided.get(part, 0.0))
    shown = {part: column for part, column in parts.items() if any(column)}
    return Causes(list(moments), shown, of_steps, None if of_steps else steps.unknown)


def _divided(
    values: Mapping[tuple[Metric, str], float],
    gpus: Sequence[Subject],
    device: Device | None,
    *,
    of_steps: bool,
) -> Mapping[Slice, float] | None:
    """Return how one moment divides; ``None``: nothing is known of it."""
    job = Reading({metric: value for (metric, name), value in values.items() if name == "job"})
    cards = [
        Reading({x: values[x, gpu.name] for x in _GPU if (x, gpu.name) in values}) for gpu in gpus
    ]
    slices = running(job, cards, device).slices
    whole = job.get(m.JOB_STEP_P50) if of_steps else 1.0
    total = sum(slices.values())
    if whole is None or not (total or of_steps):
        return None
    if not total:
        return {Slice.IDLE_UNKNOWN: whole}
    return {part: whole * ns / total for part, ns in slices.items()}


def _by_time(courses: Sequence[Course]) -> dict[int, dict[tuple[Metric, str], float]]:
    """Return what is known at each moment; what was not due at one holds on for a little."""
    times = sorted({time for course in courses for time in course.times})
    moments: dict[int, dict[tuple[Metric, str], float]] = {time: {} for time in times}
    for course in courses:
        there = dict(zip(course.times, course.values, strict=True))
        known: tuple[int, float] | None = None
        for time in times:
            value = there.get(time)
            if value is not None:
                known = time, value
            if known is not None and time - known[0] <= _HOLDS_MS:
                moments[time][course.metric, course.name] = known[1]
    return moments
