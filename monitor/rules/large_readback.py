"""Large arrays go from the device to the host in every step.

## What it sees
The bytes that a step reads back, and the lines that do it: with PyTorch on a CPU, where nothing is
copied, the time of the lines that take whole tensors (`.cpu()`, `.tolist()`). On a GPU the copies
in the trace, and the time in which nothing else runs.

## Why it costs
The host waits until the device has computed the array, then for the copy, then does its own work
on it; the device meanwhile has nothing to do. Logits, activations or pictures of a whole batch are
a thousand times larger than what one wants to know from them.

## How to fix
Compute on the device what is wanted of the array, and return that: a mean, a count of hits, the
worst. Look at whole arrays every hundred steps only.

## When it is wrong
Where the arrays are the result, as in generating data, they have to come back: then copy them in
the background, a step later, from pinned memory.

## Documents
D4 summary: never send large arrays to the host in each step. It holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Evidence, Fix, Found, Gain, Need, Severity, Verdict
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.signals.gain import Side, busy, comes_back, idle_slice
from whyidle.monitor.signals.sampling import share_of_lines, step_samples
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own
from whyidle.monitor.signals.window import Window

# A tenth of a millisecond on the way, at 10 GB/s.
LEAST_BYTES: Final = 1 << 20
# Two hundredths of a second's work of the host, which handles a gigabyte a second.
LEAST_RATE: Final = 20e6
# Every second step: what is read less often is logging.
LEAST_READS: Final = 0.5
# Smaller shares are within the error of some hundred stack samples.
LEAST_SHARE: Final = 0.03
# A look now and then stays, and what the device does instead: a tenth of it is much.
BACK_LEAST: Final = 0.9
# A list of a megabyte of numbers takes longer to make, on any machine.
LEAST_LIST_NS: Final = 200_000
# Reads of whole tensors; the others bring one number.
WHOLE: Final = frozenset({"cpu", "tolist", "array"})
_LABELS: Final = ("device to host", "device to host, pageable")

# Of these some lie in the framework's own files and are left out.
MOST_PLACES: Final = 20


def detect(window: Window) -> Verdict:
    """Judge the arrays that come back."""
    if window.gpu_trace is not None:
        return _of_gpu(window, window.whole_steps_on_gpu())
    if window.uses("pytorch"):
        return _of_tensors(window)
    return _of_arrays(window)


def _of_gpu(window: Window, trace: Traced) -> Verdict:
    sizes = [c["bytes"] for c in trace.copies("device to host") if c["bytes"] is not None]
    copied = trace.measure(sum(sizes) / trace.steps, "bytes/step")
    parts = [trace.detail(Slice.EXPOSED_COPY, label) for label in _LABELS]
    exposed = sum(part.value for part in parts if part is not None)
    sync = trace.share(Slice.IDLE_SYNC)
    if copied.value < LEAST_BYTES or sync is None or exposed + sync.value < LEAST_SHARE:
        return None
    return _found(
        window,
        Gain.between(exposed, exposed + sync.value),
        (
            Evidence.of("read back", copied),
            Evidence.of("only such copies run", trace.measure(exposed, "ratio")),
            Evidence.of("device idle in waits for it", sync),
        ),
        Slice.EXPOSED_COPY if exposed > sync.value else Slice.IDLE_SYNC,
    )


def _of_tensors(window: Window) -> Verdict:
    """On a CPU PyTorch copies nothing; what is done with the tensor takes its time all the same."""
    reads = window.needed(window.syncs_per_step, Need.STEPS if window.job.inside else Need.INSIDE)
    share = window.needed(_handled(window), Need.INSIDE)
    if reads.value < LEAST_READS or share.value < LEAST_SHARE:
        return None
    error = step_samples(window.job).error(share.value)
    evidence = (
        Evidence.of("reads a step", reads),
        Evidence.of("main thread on lines that take whole tensors", share),
    )
    gain = Gain.between(BACK_LEAST * (share.value - error), share.value + error)
    found = _found(window, gain, evidence, Slice.IDLE_DISPATCH)
    # A few samples at the line by chance are no reason to act.
    is_sure = share.value - error >= LEAST_SHARE
    return found if is_sure else replace(found, severity=Severity.LOW)


def _of_arrays(window: Window) -> Verdict:
    # Without steps each read counts by itself.
    copied = window.needed(
        window.read_bytes_per_step or _bytes_a_read(window),
        Need.STEPS if window.job.inside else Need.INSIDE,
    )
    if copied.value < LEAST_BYTES:
        return None
    share, trace = _handled(window), window.trace
    if share is None:
        return window.lacks(Need.INSIDE)
    if trace is None:
        return _without_trace(window, copied, share)
    # What is left: the work of the device, which these lines wait for, and the other lines; at
    # best at once. The idle time between the operations of a CPU backend stays.
    work, rest = busy(trace), 1.0 - share.value
    if 1.0 - max(work, rest) < LEAST_SHARE:
        return None
    error = step_samples(window.job).error(share.value)
    high = 1.0 - max(work, rest - error)
    return _found(
        window,
        Gain.between(BACK_LEAST * max(0.0, 1.0 - work - rest - error), high),
        (
            Evidence.of("read back", copied),
            Evidence.of("main thread on the lines that read", share),
            Evidence.of("device works", trace.measure(work, "ratio")),
        ),
        idle_slice(trace),
    )


def _without_trace(window: Window, copied: Measure, share: Measure) -> Verdict:
    """Judge by the samples alone: how long the device works meanwhile is not known."""
    if window.host is None:
        return window.lacks(Need.TRACE)
    error = step_samples(window.job).error(share.value)
    gain = comes_back(window, BACK_LEAST * (share.value - error), share.value + error, Side.HOST)
    evidence = (
        Evidence.of("read back", copied),
        Evidence.of("main thread on the lines that read", share),
    )
    return _found(window, gain, evidence, Slice.IDLE_SYNC) if gain.high >= LEAST_SHARE else None


def _bytes_a_read(window: Window) -> Measure | None:
    """Return the size of a read, where enough is read to be done in every step."""
    copied = window.job.mean(m.PROCESS_READBACK)
    if copied is None or copied.value < LEAST_RATE:
        return None
    return copied.per(window.job.mean(m.PROCESS_SYNCS), "bytes/read")


def _handled(window: Window) -> Measure | None:
    """Return the time of the lines that take whole arrays, waits for the device included."""
    places = [(read.file, read.line) for read in window.job.reads if _is_large(read)]
    found = share_of_lines(window.job, places, arrays=True)
    if found is None or window.uses("pytorch"):
        return found
    # JAX waits in its own code; the line is the whole of it.
    wanted = set(places)
    share = sum(x.share for x in step_samples(window.job).lines if (x.file, x.line) in wanted)
    return window.job.sampled(min(1.0, share))


def _is_large(read: ReadBack) -> bool:
    """Tell whether a read may bring a whole array; of a list its time says how long it is."""
    if read.kind == "tolist" and read.count:
        return read.ns >= LEAST_LIST_NS * read.count
    return read.kind in WHOLE


def _found(window: Window, gain: Gain, evidence: tuple[Evidence, ...], part: Slice) -> Found:
    return Found(
        gain=gain, evidence=evidence, where=own(window.where_read(MOST_PLACES)), slice=part
    )


rule = Rule(
    title="Large arrays go from the device to the host in every step",
    documents=("D4 summary",),
    fixes={
        "jax": Fix(
            "Return what you want to know of the array, computed in the step.",
            """\
@jax.jit
def step(params, x, y):
    (loss, logits), slope = jax.value_and_grad(loss_of, has_aux=True)(params, x, y)
    hits = jnp.mean(jnp.argmax(logits, axis=-1) == y)
    return update(params, slope), loss, hits  # two numbers, no logits""",
        ),
        "pytorch": Fix(
            "Reduce the tensor where it is, and look at whole ones now and then.",
            """\
hits += (logits.argmax(-1) == y).sum()  # stays on the device
if number % 100 == 0:
    print(f"{number}: {hits.item() / (100 * len(y)):.1%}")
    hits.zero_()""",
        ),
    },
    detect=detect,
)
