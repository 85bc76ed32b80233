"""Batches are copied to the GPU from memory that the driver cannot reach directly.

## What it sees
Copies from pageable memory in a trace of a GPU: how long each takes, how many bytes a second it
brings, and the time in which nothing but such a copy runs. Whether PyTorch's loader pins its
batches.

## Why it costs
The driver first copies pageable memory into a buffer of its own, piece by piece, at half the speed;
and the call waits for it, so that the host launches nothing meanwhile and no kernel runs beside the
copy.

## How to fix
Let the loader put its batches into pinned memory, and copy them with `non_blocking=True`: the call
returns at once, and the copy runs while the GPU computes. In JAX put the next batch on the device
before it is needed.

## When it is wrong
A few small copies a step cost nothing. Pinned memory is taken from everybody: gigabytes of it slow
the machine down. A copy that comes right before its use is waited for, pinned or not, until it is
made a step ahead.

## Documents
D2 (causes: copies that take longer and longer) and D5 (input pipeline). Both hold.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.contracts.trace import CopyJson
from whyidle.monitor.core.finding import Evidence, Fix, Found, Gain, Verdict
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import of_slice
from whyidle.monitor.signals.window import Window

# What nothing else covers; "low" in the contract.
LEAST: Final = 0.01
# A few numbers, such as a seed, are pageable in every program.
LEAST_BYTES: Final = 1 << 20
# Of four measured pairs: pageable copies grew by 1.53 to 1.66 when the host had more to do, pinned
# ones are made by the GPU alone. By so much at least a pinned copy is shorter.
FASTER: Final = 1.5
_LABEL: Final = "host to device, pageable"


def detect(window: Window) -> Verdict:
    """Judge the copies to the device."""
    trace = window.whole_steps_on_gpu()
    exposed = trace.detail(Slice.EXPOSED_COPY, _LABEL)
    copies = [c for c in trace.copies("host to device") if c["memory"] == "pageable"]
    size = sum(copy["bytes"] or 0 for copy in copies) / trace.steps
    if exposed is None or exposed.value < LEAST or size < LEAST_BYTES:
        return None
    return Found(
        gain=_gain(trace, exposed),
        evidence=tuple(_evidence(window, trace, exposed, copies, size)),
        where=of_slice(window, Slice.EXPOSED_COPY),
        slice=Slice.EXPOSED_COPY,
    )


def _gain(trace: Traced, exposed: Measure) -> Gain:
    """Pinned alone the copies are shorter; beside the work they are gone, and the wait for them."""
    sync = trace.share(Slice.IDLE_SYNC)
    waits = 0.0 if sync is None else sync.value
    return Gain.between(exposed.value * (1 - 1 / FASTER), exposed.value + waits)


def _evidence(
    window: Window,
    trace: Traced,
    exposed: Measure,
    copies: list[CopyJson],
    size: float,
) -> list[Evidence]:
    took = sum(copy["total_ns"] for copy in copies)
    found = [
        Evidence.of("only such a copy runs", exposed),
        Evidence.of("copied a step", trace.measure(size, "bytes/step")),
        Evidence.of("speed", trace.measure(size * trace.steps / took, "GB/s")),
    ]
    pinned = next((loader.get("pin_memory") for loader in window.loaders), None)
    if pinned is not None:
        found.append(Evidence("loader pins its batches", "yes" if pinned else "no", "", "agent"))
    return found


rule = Rule(
    title="Batches are copied to the GPU from pageable memory",
    documents=("D2", "D5"),
    fixes={
        "pytorch": Fix(
            "Pin the batches, and let the copies run beside the work.",
            """\
loader = DataLoader(dataset, batch_size=64, pin_memory=device.type == "cuda")
for x, y in loader:
    x = x.to(device, non_blocking=True)
    y = y.to(device, non_blocking=True)
    train_step(x, y)""",
        ),
        "jax": Fix(
            "Put the next batch on the device while this one is worked on.",
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
    detect=detect,
)
