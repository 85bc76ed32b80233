"""Data goes from the host to the device in every step, though it could stay there.

## What it sees
Programs that each step of a trace calls and whose arguments are larger than all arrays on the
device: the rest are NumPy arrays, that are copied at each call. On a GPU the trace shows the
copies: their bytes, and the time in which nothing else runs. Where no trace says so, the samples
that found the main thread handing an array over that no step makes anew, as the source says.

## Why it costs
A compiled function takes its arguments from the device's memory. An array of the host is copied
there at each call, whole, even if a batch is cut out of it then. The step cannot begin before.

## How to fix
Put what does not change on the device once, before the loop: the data set if it fits, tables,
masks. Then cut the batches out there. Where the data do not fit, copy one batch at a time, and
ahead of its use.

## When it is wrong
A batch that is new in each step has to be copied in each step: only that it is waited for can be
helped, by putting the next one on the device in time.

## Documents
D1 §1 (`jax.device_put`): its advice holds. D1's `PositionalSharding` is gone: what a second
argument of `device_put` says today is a device, or a `NamedSharding`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from whyidle.monitor.code.renewed import made_anew, stays
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Need,
    Place,
    Severity,
    Verdict,
)
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.gain import Side, busy, comes_back, idle_slice
from whyidle.monitor.signals.traced import LEAST_STEPS, Traced
from whyidle.monitor.signals.user_lines import at, of_slice, own
from whyidle.monitor.signals.window import Window

# A copy for every second step at least.
LEAST_COPIES: Final = 0.5
# Copies that are waited for so long are worth a person's time.
LEAST_SHARE: Final = 0.03
# Less is a batch, or a table, that takes a fraction of a millisecond.
LEAST_BYTES: Final = 4 << 20
# Of samples: a batch that is new in each step takes less, unless it is large beside the work.
LEAST_OF_SAMPLES: Final = 0.05
# Of what surely is the same each time.
LEAST_OF_SAME: Final = 0.01
# What stays of copies that only run by themselves: the next wait.
BACK_LEAST: Final = 0.7
# Bytes a second that a CPU backend copies into memory that is new each time (measured: 3 GB/s).
SLOW, FAST = 2e9, 4e9
# What is left of the work on a CPU when nothing is copied beside it (measured, of one job: 0.55).
SHORTER: Final = 0.55
# In a trace one call may be cut off at an end.
AS_OFTEN: Final = 0.2
Program = Mapping[str, Any]


def detect(window: Window) -> Verdict:
    """Judge the copies to the device."""
    trace = window.trace
    if trace is None:
        return _of_samples(window) or window.lacks(Need.TRACE)
    if trace.steps < LEAST_STEPS:
        return _of_samples(window) or window.lacks(Need.LONGER_TRACE)
    found = _of_gpu(window, trace) if window.gpu_trace is not None else _of_cpu(window, trace)
    return found if isinstance(found, Found) else _of_samples(window) or found


def _of_samples(window: Window) -> Found | None:
    """Judge the lines at which the main thread hands arrays of the host to the device."""
    account = window.host
    if account is None or not window.uses("jax"):
        return None
    # A batch that is new in each step has to be copied in each step.
    handed = account.lines(lambda row: row.doing is HostClass.PUT and not made_anew(row.frames))
    same = tuple(place for place in handed if stays(place.file, place.line))
    found = _of_lines(window, account, handed, LEAST_OF_SAMPLES)
    return found or _of_lines(window, account, same, LEAST_OF_SAME)


def _of_lines(
    window: Window, account: HostAccount, handed: Sequence[Place], least: float
) -> Found | None:
    share = sum(place.share or 0.0 for place in handed)
    error = account.error(share)
    if share - error < least:
        return None
    # Beside the thread that launches, others may copy: how long they do is not seen.
    beside = least < LEAST_OF_SAMPLES and window.works_ahead
    return Found(
        gain=None
        if beside
        else comes_back(window, BACK_LEAST * (share - error), share + error, Side.HOST),
        evidence=(Evidence.of("main thread hands data over", window.job.sampled(share)),),
        where=own(handed),
        slice=Slice.EXPOSED_COPY,
        confidence=Confidence.INFERRED,
        severity=Severity.LOW if beside else None,
    )


def _of_gpu(window: Window, trace: Traced) -> Verdict:
    """On a GPU the part in which only a copy runs comes back whole."""
    copies = list(trace.copies("host to device"))
    number = sum(copy["count"] for copy in copies) / trace.steps
    sizes = [copy["bytes"] for copy in copies if copy["bytes"] is not None]
    exposed = _exposed(trace)
    if exposed is None or number < LEAST_COPIES or exposed.value < LEAST_SHARE:
        return None
    if not window.uses("jax"):
        return None
    evidence = [
        Evidence.of("copies a step", trace.measure(number, "1/step")),
        Evidence.of("only copies run", exposed),
    ]
    if sizes:
        per_step = trace.measure(sum(sizes) / trace.steps, "bytes/step")
        evidence.append(Evidence.of("copied", per_step))
    gain = Gain.between(BACK_LEAST * exposed.value, exposed.value)
    return Found(gain, tuple(evidence), of_slice(window, Slice.EXPOSED_COPY), Slice.EXPOSED_COPY)


def _exposed(trace: Traced) -> Measure | None:
    labels = ("host to device", "host to device, pageable")
    parts = [trace.detail(Slice.EXPOSED_COPY, label) for label in labels]
    found = [part.value for part in parts if part is not None]
    return trace.measure(sum(found), "ratio") if found else None


def _of_cpu(window: Window, trace: Traced) -> Verdict:
    """Arguments of a program that lie on no device come from the host, at each call."""
    programs, alive = window.fact("largest_executables"), window.job.mean(m.PROCESS_LIVE_BYTES)
    step = trace.step_s
    if not isinstance(programs, list) or alive is None or step is None:
        return window.lacks(Need.INSIDE)
    if not trace.calls(r"PjitFunction\(.*\)"):
        return window.lacks(Need.FRAMES)
    program = _largest(trace, programs)
    if program is None:
        return None
    copied = window.job.measure(max(0.0, _bytes(program) - alive.value), "bytes/step")
    if copied.value < LEAST_BYTES:
        return None
    idle = 1.0 - busy(trace)
    low = BACK_LEAST * min(idle, copied.value / FAST / step.value)
    # Copies and work share cores and the memory's bandwidth: without them the work is shorter too.
    high = min(1.0 - SHORTER * busy(trace), copied.value / SLOW / step.value)
    if low < LEAST_SHARE:
        return None
    return Found(
        gain=Gain.between(low, high),
        evidence=(
            Evidence.of("arguments that lie on no device", copied),
            Evidence.of("device idle", trace.measure(idle, "ratio")),
            Evidence.of("step", step),
        ),
        where=at(window.job, window.where_compiled(_name(program))),
        slice=idle_slice(trace),
    )


def _largest(trace: Traced, programs: list[Program]) -> Program | None:
    """Return the program with the largest arguments among those that each step calls.

    Of several that share a name it is not known which one it is: the smallest is surely called.
    """
    each: dict[str, Program] = {}
    for program in sorted(programs, key=_bytes, reverse=True):
        each[_name(program)] = program
    called = [p for p in each.values() if _is_called_in_each_step(trace, _name(p))]
    return max(called, key=_bytes, default=None)


def _is_called_in_each_step(trace: Traced, name: str) -> bool:
    count = trace.count(re.escape(f"PjitFunction({name})"))
    return bool(count >= min(trace.steps - 1, (1 - AS_OFTEN) * trace.steps))


def _bytes(program: Program) -> float:
    return float(program.get("argument_bytes") or 0)


def _name(program: Program) -> str:
    return str(program.get("name", "")).removeprefix("jit_")


rule = Rule(
    title="Data goes from the host to the device in every step",
    documents=("D1 §1",),
    fixes={
        "jax": Fix(
            "Put the data on the device once, before the loop, and cut the batches out there.",
            """\
images, labels = jax.device_put((images, labels))  # once
for first in range(0, len(images), batch):
    params = step(params, images, labels, first)""",
        ),
    },
    only=("jax",),
    detect=detect,
)
