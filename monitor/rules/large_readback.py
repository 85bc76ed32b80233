"""Large arrays are copied to the host in every step.

## What it sees
The bytes that a step copies to the host. With PyTorch on a CPU: lines that take whole tensors
(`.cpu()`, `.tolist()`).

## Why it costs
The device is idle while the host waits for the array.

## How to fix
Return a mean, a count or the worst; read whole arrays every hundred steps.

## When it is wrong
If the arrays are the result, copy them in the background, a step later, from pinned memory.

## Documents
D4 summary: never send large arrays to the host in each step. It holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.callees import computes_before_it_reads
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.core.host_class import LAUNCHES, HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._kinds import LEAST_BYTES, OFTEN
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.gain import Side, busy, comes_back, idle_slice
from whyidle.monitor.signals.phases import STOPPING
from whyidle.monitor.signals.sampling import share_of_lines, step_samples
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own

# Two hundredths of a second's work of the host, which handles a gigabyte a second.
LEAST_RATE: Final = 20e6
# A list of a megabyte of numbers takes longer to make, on any machine.
LEAST_LIST_NS: Final = 200_000
# Reads of whole tensors; the others bring one number.
WHOLE: Final = frozenset({"cpu", "tolist", "array"})
# What a line that reads does before: it may call the model, and make its input.
_COMPUTES: Final = LAUNCHES | {HostClass.FRAMEWORK_WAIT, HostClass.COMPILE, HostClass.LOADER}


def detect(window: Window) -> Verdict:
    """Judge the arrays that come back."""
    if window.gpu_trace is not None:
        return _of_gpu(window, window.whole_steps_on_gpu())
    if window.computes("pytorch"):
        return _of_tensors(window)
    return _of_arrays(window)


def _of_gpu(window: Window, trace: Traced) -> Verdict:
    sizes = [c["bytes"] for c in trace.copies("device to host") if c["bytes"] is not None]
    copied = trace.measure(sum(sizes) / trace.steps, "bytes/step")
    exposed, sync = trace.exposed("device to host"), trace.share(Slice.IDLE_SYNC)
    if copied.value < LEAST_BYTES or sync is None or exposed + sync.value < BEYOND_CHANCE:
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
    reads = window.needed(window.syncs_per_step, window.of_steps)
    share = window.needed(_handled(window), Need.INSIDE)
    if reads.value < OFTEN or share.value < BEYOND_CHANCE:
        return None
    error = step_samples(window.job).error(share.value)
    # A line that first computes what it reads takes that time wherever it leaves the tensor.
    mixed = _handled(window, computes_before_it_reads)
    sure = share.value - error - (0.0 if mixed is None else mixed.value)
    evidence = (
        Evidence.of("reads a step", reads),
        Evidence.of("main thread on lines that take whole tensors", share),
    )
    gain = Gain.between(NEARLY_ALL * max(0.0, sure), share.value + error)
    found = _found(window, gain, evidence, Slice.IDLE_DISPATCH)
    # A few samples at the line by chance are no reason to act.
    return found if sure >= BEYOND_CHANCE else replace(found, severity=Severity.LOW)


def _of_arrays(window: Window) -> Verdict:
    copied, rate = window.per_step(m.PROCESS_READBACK), window.job.mean(m.PROCESS_READBACK)
    if copied is None and rate is not None and rate.value >= LEAST_RATE:
        # Without steps each read counts by itself, where enough is read to be done in every step.
        copied = rate.per(window.job.mean(m.PROCESS_SYNCS), "bytes/read")
    copied = window.needed(copied, window.of_steps)
    if copied.value < LEAST_BYTES:
        return None
    share, trace = window.needed(_handled(window), Need.INSIDE), window.trace
    error, part = step_samples(window.job).error(share.value), Slice.IDLE_SYNC
    evidence = {"read back": copied, "main thread on the lines that read": share}
    if trace is None:
        # By the samples alone: how long the device works meanwhile is not known.
        window.needed(window.host, Need.TRACE)
        low, high = NEARLY_ALL * (share.value - error), share.value + error
        gain = comes_back(window, low, high, Side.HOST)
        at_most = gain.high
    else:
        # What is left: the work of the device, which these lines wait for, and the other lines; at
        # best at once. The idle time between the operations of a CPU backend stays.
        work, rest = busy(trace), 1.0 - share.value
        at_most, high = 1.0 - max(work, rest), 1.0 - max(work, rest - error)
        gain = Gain.between(NEARLY_ALL * max(0.0, 1.0 - work - rest - error), high)
        evidence["device works"], part = trace.measure(work, "ratio"), idle_slice(trace)
    if at_most < BEYOND_CHANCE:
        return None
    return _found(window, gain, Evidence.known(evidence), part)


def _handled(window: Window, only: Callable[[str, int], bool] | None = None) -> Measure | None:
    """Return the time of the lines that take whole arrays, waits for the device included."""
    places = [
        (read.file, read.line)
        for read in window.job.reads
        # It may bring a whole array; of a list its time says how long it is.
        if read.kind in WHOLE
        and (read.kind != "tolist" or not read.count or read.ns >= LEAST_LIST_NS * read.count)
        and (only is None or only(read.file, read.line))
    ]
    found = share_of_lines(window.job, places, arrays=True)
    if found is None or window.computes("pytorch"):
        return found
    # JAX waits in its own code: the line is the whole of it, but for the model that it runs.
    wanted, lines, host = set(places), step_samples(window.job).lines, window.host
    at = lines if host is None else host.lines(_reads)
    share = sum(x.share or 0.0 for x in at if (x.file, x.line) in wanted)
    return window.job.sampled(min(1.0, share))


def _reads(row: HostRow) -> bool:
    """Tell whether a line reads in the steps, or works on what it read."""
    return row.doing not in _COMPUTES and row.phase not in STOPPING


def _found(window: Window, gain: Gain, evidence: tuple[Evidence, ...], part: Slice) -> Found:
    return Found(gain=gain, evidence=evidence, where=own(window.where_read()), slice=part)


rule = Rule(
    title="Large arrays are copied to the host in every step",
    documents=("D4 summary",),
    fixes={
        "jax": Fix(
            "Read it only when it is shown, or compute in the step what you need.",
            """\
@jax.jit
def step(params, x, y):
    of_loss = jax.value_and_grad(loss_of, has_aux=True)
    (loss, logits), slope = of_loss(params, x, y)
    hits = jnp.mean(jnp.argmax(logits, axis=-1) == y)
    return update(params, slope), loss, hits  # two numbers, no logits""",
        ),
        "pytorch": Fix(
            "Reduce tensors on the device, and read whole ones now and then.",
            """\
hits += (logits.argmax(-1) == y).sum()  # stays on the device
if number % 100 == 0:
    print(f"{number}: {hits.item() / (100 * len(y)):.1%}")
    hits.zero_()""",
        ),
    },
)
