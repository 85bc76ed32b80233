"""The pace of a job's steps in words: now, and over a whole recording."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import HARMLESS
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import inside, model, numbers
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.model import named
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.runs.training import Trained
from whyidle.monitor.tracing.scheduler import TAKEN

# Sources of steps as a sentence names them.
_SOURCES: Final = {
    "whyidle.step": "monitor.step()",
    "optimizer": "optimizer",
    "loop": "turns of the job's own loop",
    "trace": "from a trace",
}
FEW: Final = 2


def pace(snapshot: Snapshot) -> str | None:
    """Return the pace of the steps and its source; ``None`` if nothing counts them."""
    job = snapshot.job
    said = in_words(
        job.get(m.JOB_STEPS), job.get(m.JOB_STEP_P50), job.get(m.JOB_STEP_P95),
        job.get(m.JOB_SAMPLES), unit=_unit(serves=snapshot.serves),
    )  # fmt: skip
    source = counted_by(snapshot)
    if said and not source and (reason := why_not(snapshot)):
        return f"{said}; {reason}"
    return f"{said} ({source})" if said and source else said or None


def in_words(
    rate: float | None,
    median: float | None,
    slow: float | None,
    samples: float | None,
    unit: str = "step",
) -> str:
    """Return what is known about the steps; empty if nothing is."""
    parts = [] if rate is None else [f"{per_second(rate)} {unit}s/s"]
    if median is not None:
        p95 = "" if slow is None else f", 95% within {clock(slow * 1e9)}"
        parts.append(f"{clock(median * 1e9)} a {unit}{p95}")
    if samples is not None:
        parts.append(f"{per_second(samples)} samples/s")
    return ", ".join(parts)


def why_not(snapshot: Snapshot) -> str | None:
    """Return why the step time is unknown, if that is worth saying."""
    reason = snapshot.job.unknown.get(m.JOB_STEP_P50)
    if reason is None or reason in HARMLESS:
        return None
    return f"step time unknown: {printable(reason)}"


def briefly(snapshot: Snapshot) -> str | None:
    """Return the pace for a line that is already crowded."""
    job = snapshot.job
    rate, median = job.get(m.JOB_STEPS), job.get(m.JOB_STEP_P50)
    unit = _unit(serves=snapshot.serves)
    parts = [] if rate is None else [f"{per_second(rate)} {unit}s/s"]
    if median is not None:
        parts.append(clock(median * 1e9))
        if (slow := job.get(m.JOB_STEP_P95)) is not None:
            parts.append(f"p95 {clock(slow * 1e9)}")
    samples = job.get(m.JOB_SAMPLES)
    if not parts and samples is not None:
        parts.append(f"{per_second(samples)} samples/s")
    return " ".join(parts) or None


def counted_by(snapshot: Snapshot) -> str | None:
    """Return what marks the end of a step."""
    found = {x.steps_source for x in snapshot.members if x.steps_source}
    if snapshot.traces is not None and snapshot.job.get(m.JOB_STEPS) is None:
        # Nothing counts all steps, but a trace shows how long some took.
        found = {"trace"}
    return ", ".join(sorted(source_words(x) for x in found)[:FEW]) or None


def source_words(source: str) -> str:
    """Return a source of steps as a sentence names it."""
    return _SOURCES.get(source) or named(source)


def _unit(*, serves: bool) -> str:
    """Return the word for what is counted: a server makes a step for each request."""
    return "request" if serves else "step"


def per_second(rate: float) -> str:
    """Return a rate with up to three digits."""
    if rate >= 99.95:
        return numbers.scaled_tightly(rate)
    return f"{rate:.{2 if rate < 9.995 else 1}f}"


def page(summary: RunSummary) -> list[str]:
    """Return the summary lines about the training; none if nothing is known."""
    training = summary.trained
    unit = _unit_of(summary)
    lines = [
        ("model", model.of_frameworks(model.best(each.frameworks for each in summary.watched))),
        (f"{unit}s", _steps(summary, training, unit)),
        ("waits", _waits(summary, training)),
    ]
    taken = [event for event in summary.events if event.kind == TAKEN]
    if taken:
        at = numbers.duration(max(0, taken[-1].ts_ms - summary.run.started_ms) / 1000)
        first = f", the last of {len(taken)}" if len(taken) > 1 else ""
        lines.append(("trace", f"after {at}{first}: {printable(taken[-1].text)}"))
    return [f"  {name:<8} {said}" for name, said in lines if said]


def said(summary: RunSummary) -> str | None:
    """Return the steps and the waits of a recording in one line."""
    training = summary.trained
    waits = _waits(summary, training, inside.NOTABLE_READS)
    parts = (_steps(summary, training, _unit_of(summary)), waits and f"waits: {waits}")
    return "; ".join(filter(None, parts)) or None


def _unit_of(summary: RunSummary) -> str:
    host = None if summary.diagnosis is None else summary.diagnosis.host
    serving = None if host is None else host.serving
    return _unit(serves=serving is not None and not serving.trains)


def _steps(summary: RunSummary, training: Trained, unit: str) -> str | None:
    if training.steps is None:
        if training.samples_per_s is None:
            return None
        reason = printable(summary.why_not_trained("steps"))
        return f"{per_second(training.samples_per_s)} samples/s; steps unknown: {reason}"
    source = f" ({source_words(training.steps_source)})" if training.steps_source else ""
    p50, p95 = training.step_p50_s, training.step_p95_s
    said = in_words(None, p50, p95, training.samples_per_s, unit)
    return ", ".join(filter(None, [f"{training.steps:,} seen{source}", said]))


def _waits(summary: RunSummary, training: Trained, least: float = 0.0) -> str | None:
    compiled = f" ({training.compiles:,} times)" if training.compiles else ""
    waits = (
        ("for input", training.loader_wait, ""),
        ("reads of values", training.sync_wait, _reads(summary, training)),
        ("compiling", training.compile, compiled),
    )
    shares = (
        f"{what} {share(part, 1)}{more}"
        for what, part, more in waits
        if part is not None and part >= least
    )
    return ", ".join(shares) or None


def _reads(summary: RunSummary, training: Trained) -> str:
    """Return the line where reads took longest, if they took a notable time."""
    longest = max(summary.reads, key=lambda read: read.ns, default=None)
    if longest is None or (training.sync_wait or 0.0) < inside.NOTABLE_READS:
        return ""
    return f" (most at {inside.place(longest)})"
