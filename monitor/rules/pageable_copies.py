"""Batches are copied to the GPU from memory that the driver cannot reach directly.

## What it sees
Copies from pageable memory in a GPU trace.

## Why it costs
They run at half the speed, and no kernel runs meanwhile.

## How to fix
With `non_blocking=True` the copy runs while the GPU computes.

## When it is wrong
A few small copies cost nothing. Gigabytes of pinned memory slow down the machine. A copy right
before its use is waited for: make it a step ahead.

## Documents
D2 (causes: copies that take longer and longer) and D5 (input pipeline). Both hold.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._kinds import LEAST_BYTES
from whyidle.monitor.signals.user_lines import of_slice

# Of four measured pairs: pageable copies grew by 1.53 to 1.66 when the host had more to do, pinned
# ones are made by the GPU alone. By so much at least a pinned copy is shorter.
FASTER: Final = 1.5


def detect(window: Window) -> Verdict:
    """Judge the copies to the device."""
    trace = window.whole_steps_on_gpu()
    exposed = trace.detail(Slice.EXPOSED_COPY, "host to device, pageable")
    copies = [c for c in trace.copies("host to device") if c["memory"] == "pageable"]
    size = sum(copy["bytes"] or 0 for copy in copies) / trace.steps
    if exposed is None or exposed.value < Severity.LOW.least or size < LEAST_BYTES:
        return None
    speed = size * trace.steps / sum(copy["total_ns"] for copy in copies)
    pinned = next((loader.get("pin_memory") for loader in window.loaders), None)
    says = "yes" if pinned else "no"
    said = [] if pinned is None else [Evidence("loader pins its batches", says, "", "agent")]
    waits = trace.taken(Slice.IDLE_SYNC)
    return Found(
        # Pinned alone they are shorter; beside the work they are gone, and the wait for them.
        gain=Gain.between(exposed.value * (1 - 1 / FASTER), exposed.value + waits),
        evidence=(
            Evidence.of("only such a copy runs", exposed),
            Evidence.of("copied a step", trace.measure(size, "bytes/step")),
            Evidence.of("speed", trace.measure(speed, "GB/s")),
            *said,
        ),
        where=of_slice(window, Slice.EXPOSED_COPY),
        slice=Slice.EXPOSED_COPY,
    )


rule = Rule(
    title="Batches are copied to the GPU from pageable memory",
    documents=("D2", "D5"),
    fixes={
        "pytorch": Fix(
            "Pin the batches, and copy them with non_blocking=True.",
            """\
pinned = device.type == "cuda"
loader = DataLoader(dataset, pin_memory=pinned, **as_before)
for x, y in loader:
    x = x.to(device, non_blocking=True)
    y = y.to(device, non_blocking=True)
    train_step(x, y)""",
        ),
        "jax": Fix(
            "Copy the next batch to the device while this one is computed.",
            """\
batches = iter(loader)
ahead = jax.device_put(next(batches))
for batch in batches:
    now, ahead = ahead, jax.device_put(batch)
    params = step(params, *now)
params = step(params, *ahead)""",
        ),
    },
    only=("pytorch", "jax"),
)
