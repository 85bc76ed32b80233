"""Many small copies go to the device in each step.

## What it sees
The number and size of copies to the device in a step.

## Why it costs
Each copy costs some 30 us in JAX on a CPU: 64 arrays of 4 KiB took 2 ms, one stacked array 0.1 ms.

## How to fix
Put tables, masks and constants on the device before the loop.

## When it is wrong
Different types or shapes may not fit one array. A host well ahead of a busy device gains less.

## Documents
D2 §3 (practice 3: pack small copies). It holds for PyTorch and JAX too; its code for Flux.jl was
not run here.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code import source
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE, NEARLY_ALL, SURELY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, SourceLine
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.gain import Side, busy, comes_back
from whyidle.monitor.signals.traced import LEAST_STEPS, Traced
from whyidle.monitor.signals.user_lines import of_slice, own, seen

# A batch of a transformer is five arrays, that of a model with many inputs ten.
MANY: Final = 16
# Below this a link of PCIe 4.0 x16 (32 GB/s) has them over before a call of 10 us returns.
SMALL_BYTES: Final = 256 << 10
# The same where only the time of a copy is known: 0.2 ms is 0.6 MB at what a CPU copies, 3 GB/s.
SMALL_S: Final = 2e-4
# What a call of Python's takes beside what the trace shows of it: 31 to 34 us measured in all.
CALL_S: Final = 34e-6
_JAX_PUT: Final = r"DevicePut"
_HANDS_OVER: Final = re.compile(r".*\.(to|cuda|copy_|as_tensor|tensor|from_numpy)\(")


def detect(window: Window) -> Verdict:
    """Judge how many copies a step makes, and what they take."""
    trace = window.gpu_trace
    if window.uses("jax"):
        number, each_s = window.per_step(m.PROCESS_DEVICE_PUTS), None
        if window.trace is not None and (calls := window.trace.calls(_JAX_PUT)):
            count, took = sum(c["count"] for c in calls), sum(c["total_ns"] for c in calls)
            number = window.trace.calls_per_step(_JAX_PUT)
            each_s = took / count / 1e9 if count else None
        found = None if number is None else _of_jax(window, number, each_s)
        if found is not None or trace is None:
            return window.lacks(Need.INSIDE) if number is None else found
    if trace is None:
        return None if window.device == "cpu" else window.lacks(Need.GPU_TRACE)
    return _of_gpu(window, trace) if trace.steps >= LEAST_STEPS else window.lacks(Need.LONGER_TRACE)


# A trace of a GPU --------------------------------------------------------------------------------
def _of_gpu(window: Window, trace: Traced) -> Found | None:
    copies = list(trace.copies("host to device"))
    count = sum(copy["count"] for copy in copies)
    sizes = [copy["bytes"] for copy in copies if copy["bytes"] is not None]
    number = count / trace.steps
    if number < MANY or len(sizes) < len(copies) or sum(sizes) / count >= SMALL_BYTES:
        return None
    # The host's time in the calls for copies to the device, while that idles.
    calls, in_calls = trace.calls(r"(cuda|hip|cu)Memcpy\w*"), 0.0
    if made := sum(call["count"] for call in calls):
        took = sum(call["total_ns"] for call in calls) / trace.total_ns * len(trace.devices)
        in_calls = min(1 - busy(trace), took * min(1.0, count / made))
    saved, exposed = 1 - 1 / number, trace.exposed("host to device")
    gain = Gain.between(SURELY * saved * exposed, saved * (exposed + in_calls))
    if gain.expected < Severity.LOW.least:
        return None
    return Found(
        gain,
        (
            Evidence.of("copies", trace.measure(number, "1/step")),
            Evidence.of("bytes of one", trace.measure(sum(sizes) / count, "bytes")),
            Evidence.of("only such copies run", trace.measure(exposed, "ratio")),
            Evidence.of("calls for them", trace.measure(in_calls, "ratio")),
        ),
        of_slice(window, Slice.EXPOSED_COPY) or seen(window.job, _hands_over),
        Slice.EXPOSED_COPY,
    )


def _hands_over(line: SourceLine) -> bool:
    return bool(_HANDS_OVER.match(source.line_of(line.file, line.line) or ""))


# JAX, on any device ------------------------------------------------------------------------------
def _of_jax(window: Window, number: Measure, each_s: float | None) -> Found | None:
    if number.value < MANY or (each_s is not None and each_s >= SMALL_S):
        return None
    saved, account = 1 - 1 / number.value, window.host
    put = () if account is None else account.lines(lambda row: row.doing is HostClass.PUT)
    share = sum(place.share or 0.0 for place in put)
    if account is None or not share:
        return _without_samples(window, number, saved)
    error = account.error(share)
    # All that the main thread does at the lines that hand most over: once a piece, too.
    lines = {(p.file, p.line) for p in put if (p.share or 0.0) >= LITTLE * share}
    at = account.lines(lambda row: (row.frames[0].file, row.frames[0].line) in lines)
    around = min(1.0, max(share, sum(place.share or 0.0 for place in at)))
    # Of 64 pieces that JAX was given at once on a CPU 5 to 7% of the time was left
    # (``benchmarks/unit_costs.py``).
    low, high = NEARLY_ALL * saved * max(0.0, share - error), saved * (around + error)
    gain = comes_back(window, low, high, Side.HOST)
    if share < error or gain.expected < Severity.LOW.least:
        return None
    handed = Evidence.of("main thread hands data over", window.job.sampled(share))
    return Found(
        gain,
        (Evidence.of("copies", number), handed),
        own(put),
        Slice.EXPOSED_COPY,
        confidence=Confidence.INFERRED,
    )


def _without_samples(window: Window, number: Measure, saved: float) -> Found | None:
    """Judge by the trace alone: of the main thread it shows the calls, and not what is around."""
    trace, step = window.trace, window.step_s
    if trace is None or step is None:
        return None
    own_time = trace.in_calls(_JAX_PUT)
    most = own_time + number.value * CALL_S / step.value
    gain = comes_back(window, NEARLY_ALL * saved * own_time, saved * min(1.0, most), Side.HOST)
    if gain.expected < Severity.LOW.least:
        return None
    evidence = (
        Evidence.of("copies", number),
        Evidence.of("in their calls", trace.measure(own_time, "ratio")),
    )
    return Found(gain, evidence, of_slice(window, Slice.EXPOSED_COPY), Slice.EXPOSED_COPY)


rule = Rule(
    title="Many small copies go to the device in each step",
    documents=("D2 §3",),
    fixes={
        "jax": Fix(
            "Combine the pieces on the host, and copy them once.",
            "batch = jax.device_put(np.stack(samples))",
        ),
        "pytorch": Fix(
            "Combine the pieces on the host, and copy them once.",
            "batch = torch.stack(samples).to(device, non_blocking=True)",
        ),
        "flux": Fix("Copy whole batches: iterate over CuIterator(loader)."),
    },
)
