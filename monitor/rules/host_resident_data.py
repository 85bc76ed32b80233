"""Data goes from the host to the device in every step, though it could stay there.

## What it sees
Programs in a trace with arguments larger than all arrays on the device, or main-thread samples
passing an array that never changes.

## Why it costs
Each call copies the whole array, even if it uses one batch.

## How to fix
If the data do not fit, copy each batch ahead of its use.

## When it is wrong
A new batch has to be copied: only the wait can be avoided.

## Documents
D1 §1 (`jax.device_put`): its advice holds. D1's `PositionalSharding` is gone: the second argument
of `device_put` is now a device or a `NamedSharding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whyidle.monitor.code.renewed import made_anew, stays
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, LITTLE, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._kinds import OFTEN
from whyidle.monitor.rules._programs import Program, bytes_of, calls_in, name_of
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.gain import Side, busy, comes_back, idle_slice
from whyidle.monitor.signals.traced import LEAST_STEPS, Traced
from whyidle.monitor.signals.user_lines import at, of_slice, own

# Less is a batch, or a table, that takes a fraction of a millisecond: from 1 MB on healthy jobs
# were told of their batches (``make golden``).
LEAST_COPIED: Final = 4 << 20
# Bytes a second that a CPU backend copies into memory that is new each time (measured: 3 GB/s).
SLOW, FAST = 2e9, 4e9
# What is left of the work on a CPU when nothing is copied beside it (measured, of one job: 0.55).
SHORTER: Final = 0.55


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
    # A batch that is new in each step has to be copied in each step: it takes less, unless it is
    # large beside the work. Of what surely is the same each time less counts.
    handed = account.lines(lambda row: row.doing is HostClass.PUT and not made_anew(row.frames))
    same = tuple(place for place in handed if stays(place.file, place.line))
    found = _of_lines(window, account, handed, Severity.MEDIUM)
    return found or _of_lines(window, account, same, Severity.LOW)


def _of_lines(
    window: Window, account: HostAccount, handed: Sequence[Place], as_much_as: Severity
) -> Found | None:
    share = sum(place.share or 0.0 for place in handed)
    error = account.error(share)
    if share - error < as_much_as.least:
        return None
    # Beside the thread that launches, others may copy: how long they do is not seen.
    beside = as_much_as is Severity.LOW and window.works_ahead
    gain = comes_back(window, NEARLY_ALL * (share - error), share + error, Side.HOST)
    return Found(
        gain=None if beside else gain,
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
    exposed = trace.exposed("host to device")
    if number < OFTEN or exposed < BEYOND_CHANCE or not window.uses("jax"):
        return None
    measures = {
        "copies": trace.measure(number, "1/step"),
        "only copies run": trace.measure(exposed, "ratio"),
        "copied": trace.measure(sum(sizes) / trace.steps, "bytes/step") if sizes else None,
    }
    return Found(
        Gain.between(NEARLY_ALL * exposed, exposed),
        Evidence.known(measures),
        of_slice(window, Slice.EXPOSED_COPY),
        Slice.EXPOSED_COPY,
    )


def _of_cpu(window: Window, trace: Traced) -> Verdict:
    """Arguments of a program that lie on no device come from the host, at each call."""
    programs, alive = window.fact("largest_executables"), window.job.mean(m.PROCESS_LIVE_BYTES)
    step = trace.step_s
    if not isinstance(programs, list) or alive is None or step is None:
        return window.lacks(Need.INSIDE)
    if not trace.calls(r"PjitFunction\(.*\)"):
        return window.lacks(Need.FRAMES)
    # Of several that share a name it is not known which one it is: the smallest is surely called.
    by_name = {name_of(each): each for each in sorted(programs, key=bytes_of, reverse=True)}
    often = min(trace.steps - 1, (1 - LITTLE) * trace.steps)
    called = [each for name, each in by_name.items() if calls_in(trace, name) >= often]
    program: Program | None = max(called, key=bytes_of, default=None)
    if program is None:
        return None
    copied = window.job.measure(max(0.0, bytes_of(program) - alive.value), "bytes/step")
    if copied.value < LEAST_COPIED:
        return None
    idle = 1.0 - busy(trace)
    low = NEARLY_ALL * min(idle, copied.value / FAST / step.value)
    # Copies and work share cores and the memory's bandwidth: without them the work is shorter too.
    high = min(1.0 - SHORTER * busy(trace), copied.value / SLOW / step.value)
    if low < BEYOND_CHANCE:
        return None
    return Found(
        gain=Gain.between(low, high),
        evidence=(
            Evidence.of("arguments that lie on no device", copied),
            Evidence.of("device idle", trace.measure(idle, "ratio")),
            Evidence.of("step", step),
        ),
        where=at(window.job, window.where_compiled(name_of(program))),
        slice=idle_slice(trace),
    )


rule = Rule(
    title="Data goes from the host to the device in every step",
    documents=("D1 §1",),
    fixes={
        "jax": Fix(
            "Put the data on the device once, before the loop. Cut the batches out there.",
            """\
images, labels = jax.device_put((images, labels))  # once
for first in range(0, len(images), batch):
    params = step(params, images, labels, first)""",
        )
    },
    only=("jax",),
)
