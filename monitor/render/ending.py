"""The end of a recording in ten lines: what was wrong first, then what was seen, then what to type.

`monitor runs RUN` has all of it; only what went wrong for us is added here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import LOST
from whyidle.monitor.render import finding_text, inside, numbers, pace, plain
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.store import Gpu

# Findings that are named; the rest is counted.
MOST: Final = 3
INDENT: Final = " " * 7
LABEL: Final = 9


def page(summary: RunSummary) -> str:
    """Return the text."""
    run = summary.run.id
    lines = [
        *_found(summary),
        *_labeled("steps", pace.said(summary)),
        *_labeled("GPU", _gpus(summary, summary.job_gpus())),
        *_labeled("job", _job(summary)),
        *_labeled("watched", _watched(summary)),
        *plain.troubles(summary),
        f"{'more':<{LABEL}}monitor diagnose {run} (evidence, code), monitor runs {run} (figures)",
    ]
    return "\n".join(lines)


def _labeled(name: str, said: str | None) -> Iterator[str]:
    if said:
        yield f"{name:<{LABEL}}{said}"


def _found(summary: RunSummary) -> Iterator[str]:
    """Yield the verdict with its best evidence, and a line for each of the next findings."""
    if summary.diagnosis is None:
        yield f"What is wrong is not known: {summary.not_diagnosed or 'nothing was recorded'}"
        return
    answer = summary.diagnosis
    first = finding_text.of_verdict(answer)
    what, *lines = finding_text.verdict(answer)
    yield what
    severity = ""
    if first is not None:
        severity = first.severity.upper()
        lines += [e.words for e in finding_text.of(first).evidence[:1]]
    for line in lines:
        yield f"{severity:<{len(INDENT)}}{line}"
        severity = ""
    others = [each for each in answer.findings if each is not first]
    shown = others[: MOST - (first is not None)]
    yield from map(_finding, shown)
    if more := len(others) - len(shown):
        yield f"{INDENT}and {more} more"


def _finding(finding: FindingJson) -> str:
    factor = finding_text.factor(finding.speedup, finding.expected)
    places = map(finding_text.short, finding.where[:1])
    said = ", ".join(filter(None, [printable(finding.title), *places, factor]))
    return f"{finding.severity.upper():<{len(INDENT)}}{said}"


def _gpus(summary: RunSummary, gpus: Sequence[Gpu]) -> str | None:
    """Say how much they were used; of several the mean, and from which to which."""
    if not gpus:
        return plain.briefly(summary.gpu_problem) if summary.gpu_problem else None
    used = [(x.mean, f"{gpu.idx}") for gpu in gpus if (x := summary.of(m.GPU_UTILISATION, gpu.id))]
    parts = []
    if used:
        (least, worst), (most, best) = min(used), max(used)
        mean = _share(statistics.fmean(share for share, _ in used))
        between = f" ({_share(least)} on GPU {worst} to {_share(most)} on GPU {best})"
        parts.append(f"{mean} used{between if len(used) > 1 else ''}")
    for name, metric in (("SM", m.GPU_SM_ACTIVITY), ("tensor", m.GPU_TENSOR_ACTIVITY)):
        if (mean_of := _mean(summary, metric, gpus)) is not None:
            parts.append(f"{name} {_share(mean_of)}")
    memory, total = (
        max((x.most for gpu in gpus if (x := summary.of(metric, gpu.id))), default=None)
        for metric in (m.GPU_MEMORY_USED, m.GPU_MEMORY_TOTAL)
    )
    if memory is not None:
        parts.append(f"memory {numbers.out_of(memory, total)}")
    if (watts := _mean(summary, m.GPU_POWER, gpus)) is not None:
        parts.append(numbers.show(watts, "watts"))
    lost = [f"{gpu.idx}" for gpu in gpus if summary.why_not(m.GPU_UTILISATION, gpu.id) == LOST]
    parts += [f"GPU {', '.join(lost)} LOST"] if lost else []
    names = {printable(gpu.name or "?").removeprefix("NVIDIA ") for gpu in gpus}
    name = f"{len(gpus)}x {names.pop()}" if len(names) == 1 else f"{len(gpus)} GPUs"
    return f"{name}: {', '.join(parts)}"


def _share(value: float) -> str:
    return numbers.show(value, "ratio")


def _mean(summary: RunSummary, metric: Metric, gpus: Sequence[Gpu]) -> float | None:
    found = [x.mean for gpu in gpus if (x := summary.of(metric, gpu.id))]
    return statistics.fmean(found) if found else None


def _job(summary: RunSummary) -> str:
    def figure(metric: Metric, *, most: bool = False) -> str:
        found = summary.of(metric, summary.run.id)
        return numbers.show(
            None if found is None else found.most if most else found.mean, metric.unit
        )

    cores = summary.of(m.HOST_CORES, summary.run.id)
    many = numbers.show(cores.most if cores else None, "count")
    return (
        f"CPU {figure(m.JOB_CPU)} of {many} cores, memory {figure(m.JOB_RSS, most=True)},"
        f" machine's CPU {figure(m.HOST_CPU)}"
    )


def _watched(summary: RunSummary) -> str:
    run = summary.run
    label = f" ({printable(run.label)})" if run.label else ""
    name = printable(PurePath(run.script).name) if run.script else "the job"
    which = f"run {run.id}{label}: {name}, pid {run.target_pid}"
    parts = (which, numbers.duration(summary.seconds), plain.ending(run), inside.briefly(summary))
    return "; ".join(part for part in parts if part)
