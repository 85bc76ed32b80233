"""Every step waits to read values from the device.

## What it sees
The main thread reads values (`.item()`, `float(loss)`, a tensor in an `if`), or in JAX passes an
array to NumPy. Reads every few steps are left out. On a GPU only its idle time counts.

## Why it costs
The host launches nothing while it waits, and then the device is idle.

## How to fix
Watch gradients now and then. To decide on a value, stay on the device: `torch.where`,
`jax.lax.cond`.

## When it is wrong
Some reinforcement learning must know each value. A host with nothing else to do gains little.

## Documents
D4 summary: never send large arrays to the host in each step; the same holds for the wait itself.
"""

from __future__ import annotations

from dataclasses import replace

from whyidle.monitor.code.environments import acts
from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import BEYOND_CHANCE, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._kinds import OFTEN
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.gain import Side, comes_back, idle_slice
from whyidle.monitor.signals.sampling import share_of_lines, step_samples
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own


def detect(window: Window) -> Verdict:
    """Judge the reads of values."""
    reads, trace = window.syncs_per_step, window.gpu_trace
    if reads is None and trace is not None:
        reads = trace.calls_per_step(r"aten::(item|is_nonzero)")
    counted = reads if reads is not None and reads.value >= OFTEN else None
    if trace is not None and counted is not None:
        return _of_gpu(window, trace, counted)
    if window.computes("pytorch") and counted is not None:
        return _of_lines(window, counted)
    on_gpu = window.device == "gpu"
    in_turns = window.uses("jax") or (window.uses("tensorflow") and (on_gpu or window.works_ahead))
    if in_turns and (counted is not None or _waits(window) >= Severity.MEDIUM.least):
        return _of_turns(window, reads)
    return window.lacks(window.of_steps) if reads is None else None


def _waits(window: Window) -> float:
    """Return how much of the time the main thread was found reading, however that is spelled.

    Who reads every few steps waits for those steps, and would wait for them elsewhere; and an
    environment cannot step before it has its action.
    """
    reading = (row for row in window.rows if row.doing is HostClass.READ)
    return sum(row.share for row in reading if not (row.due or acts(row.frames)))


def _of_gpu(window: Window, trace: Traced, reads: Measure) -> Verdict:
    """On real traces the idle time after a wait is what the wait costs, and the refilling."""
    sync = trace.share(Slice.IDLE_SYNC)
    refill = trace.detail(Slice.IDLE_DISPATCH, "refilling after a synchronisation")
    if sync is None or refill is None:
        return window.lacks(Need.LONGER_TRACE)
    # A copy from pageable memory waits too, and has a rule of its own.
    others = any(copy["memory"] == "pageable" for copy in trace.copies("host to device"))
    return _found(
        window,
        Gain.between(0.0 if others else sync.value, sync.value + refill.value),
        (
            Evidence.of("reads a step", reads),
            Evidence.of("device idle in waits for it", sync),
            Evidence.of("device idle until there is work again", refill),
        ),
        Slice.IDLE_SYNC,
    )


def _of_lines(window: Window, reads: Measure) -> Verdict:
    """PyTorch computes on the CPU in the thread that reads: the line is all there is to win."""
    # An environment cannot step before it has its action.
    acting = {
        row.frames[0][:2]
        for row in window.rows
        if (line := acts(row.frames)) and not _learns(row.frames, line)
    }
    places = [at for read in window.job.reads if (at := (read.file, read.line)) not in acting]
    if window.job.reads and not places:
        return None
    share = window.needed(share_of_lines(window.job, places), Need.INSIDE)
    error = step_samples(window.job).error(share.value)
    if share.value - error < BEYOND_CHANCE:
        return None
    return _found(
        window,
        # Some of the line's time may be other work, that stays.
        Gain.between(NEARLY_ALL * (share.value - error), share.value + error),
        (
            Evidence.of("reads a step", reads),
            Evidence.of("main thread on the lines that read", share),
        ),
        Slice.COMPUTE,
    )


def _learns(frames: tuple[CodeLine, ...], acting: CodeLine) -> bool:
    """Tell whether something is learned below the line that makes an action."""
    return any(map(trains_at, frames[: frames.index(acting) + 1]))


def _of_turns(window: Window, reads: Measure | None) -> Verdict:
    seen, spent = _waits(window), window.job.mean(m.JOB_SYNC_WAIT)
    whole = 0.0 if window.host is None else window.host.share(HostClass.READ)
    if whole >= Severity.MEDIUM.least > seen:
        # Hardly a read was found that could be left out.
        return None
    if spent is None or spent.value < seen:
        spent = window.job.sampled(seen) if seen else spent
    spent = window.needed(spent, Need.INSIDE)
    gain = comes_back(window, spent.value, spent.value, Side.AHEAD)
    if gain.high < BEYOND_CHANCE:
        return None
    evidence = Evidence.known({"reads a step": reads, "main thread in reads": spent})
    found = _found(window, gain, evidence, idle_slice(window.trace))
    # By the agent's clock, or by samples alone.
    return found if spent.value > seen else replace(found, confidence=Confidence.INFERRED)


def _found(window: Window, gain: Gain, evidence: tuple[Evidence, ...], part: Slice) -> Found:
    return Found(gain=gain, evidence=evidence, where=_where(window), slice=part)


def _where(window: Window) -> tuple[Place, ...]:
    """Return the lines that the agent saw reading; else those where the samples did."""
    sampled = (
        Place(*row.frames[0], row.share)
        for row in sorted(window.rows, key=lambda row: row.due)
        if row.doing is HostClass.READ and row.frames
    )
    by_agent, by_samples = own(window.where_read()), own(sampled)
    if sum(p.share or 0.0 for p in by_agent) >= sum(p.share or 0.0 for p in by_samples):
        return by_agent or by_samples
    return by_samples


rule = Rule(
    title="Every step waits to read values from the device",
    documents=("D4 summary",),
    fixes={
        "pytorch": Fix(
            "Add up on the device, and read the sum every hundred steps.",
            """\
total = torch.zeros((), device=device)
for number, (x, y) in enumerate(batches, 1):
    loss = train_step(x, y)
    total += loss.detach()
    if number % 100 == 0:
        print(f"{number}: loss {total.item() / 100:.3f}")
        total.zero_()""",
        ),
        "jax": Fix(
            "Add up on the device, and read the sum every hundred steps.",
            """\
total = 0.0
for number, (x, y) in enumerate(batches, 1):
    params, loss = train_step(params, x, y)
    total += loss
    if number % 100 == 0:
        print(f"{number}: loss {float(total) / 100:.3f}")
        total = 0.0""",
        ),
        "tensorflow": Fix(
            "Add up on the device, and read the sum every hundred steps.",
            """\
total = tf.zeros([])
for number, (x, y) in enumerate(batches, 1):
    total += train_step(x, y)
    if number % 100 == 0:
        print(f"{number}: loss {float(total) / 100:.3f}")
        total = tf.zeros([])""",
        ),
    },
)
