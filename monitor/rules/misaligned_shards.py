"""The batch does not divide evenly among the devices.

## What it sees
In a trace, one GPU computes longer while the others wait. In JAX also: all arrays are replicated.
In PyTorch also: `nn.DataParallel` with a batch that is no multiple of its GPUs.

## Why it costs
The largest part sets the pace. With replication each device does all of the work.

## How to fix
Shard the batch axis, and reshape it to a mesh of several axes.

## When it is wrong
Pipelines, experts, different GPUs or a lowered clock look the same: check these first.

## Documents
D3 trap 1. Its `batch[:bs // n]` raises, and would drop all but one part of the data; `from
jax.sharding import Shard` does not exist.
"""

from __future__ import annotations

from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.rules._kinds import LEAST_BYTES
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import of_slice


def detect(window: Window) -> Verdict:
    """Compare what the devices of a trace computed; else the batch with the devices."""
    trace = window.gpu_trace
    on_gpu = [x for x in ([] if trace is None else trace.devices) if x["kind"] == "gpu"]
    work = [device.get("compute_ns", 0) for device in on_gpu]
    # What has no work is another fault.
    work = [each for each in work if each > LITTLE * max(work)]
    if trace is not None and len(work) > 1:
        return _uneven(trace, work)
    devices, batch = window.fact("devices_used"), window.fact("batch_size")
    around = window.fact("parallel") or ()
    splits = "DataParallel" in ([around] if isinstance(around, str) else around)
    if not isinstance(devices, int):
        # A job of one device divides nothing; of another, nothing is known.
        is_known = window.trace is not None or devices is not None
        return None if is_known else window.lacks(Need.INSIDE)
    if splits and isinstance(batch, int):
        return _indivisible(window, batch, devices)
    if devices < 2:
        return None
    lacks = window.lacks(Need.GPU_TRACE, "of all devices together")
    return _whole_on_each(window, devices) or lacks


def _whole_on_each(window: Window, devices: int) -> Found | None:
    """Judge arrays of JAX on several devices: without a part of its own each does all the work."""
    whole, divided = window.fact("replicated_bytes"), window.fact("divided_bytes")
    if not isinstance(whole, int) or whole < LEAST_BYTES or divided != 0:
        return None
    if window.fact("collectives") != 0 or not window.fact("executables_known"):
        return None
    measure, compute = window.job.measure, window.share(Slice.COMPUTE)
    # Divided evenly, each device does its part alone; half of that where the parts are small.
    most = None if compute is None else compute.value * (1 - 1 / devices)
    return Found(
        gain=None if most is None else Gain.between(most / 2, most),
        evidence=(
            Evidence.of("devices", measure(devices, "count")),
            Evidence.of("arrays that are whole on each", measure(whole, "bytes")),
            Evidence.of("arrays in parts", measure(0, "bytes")),
        ),
        where=of_slice(window, Slice.COMPUTE),
        slice=Slice.COMPUTE,
        severity=Severity.HIGH if most is None else None,
        title=f"Each of {devices} devices does all of the work",
        frameworks=("jax",),
    )


def _uneven(trace: Traced, work: list[int]) -> Found | None:
    """Judge the devices by what the busiest one does more than the mean."""
    most, mean = max(work), sum(work) / len(work)
    over, compute = 1 - mean / most, trace.share(Slice.COMPUTE)
    span = max((device["span_ns"] for device in trace.devices), default=0)
    # Devices with the same work differ by a few percent; 13 of 100 samples on 8 devices, by 4%.
    if over < Severity.MEDIUM.least or compute is None or not span:
        return None
    evidence = (
        Evidence.of("devices that compute", trace.measure(len(work), "count")),
        Evidence.of("the busiest over the mean", trace.measure(most / mean, "ratio")),
    )
    # The pace is that of the busiest: all it does more than the mean comes back, as far as that
    # is part of the step; half of it where the others were late for a reason of their own.
    lost = over * min(1.0, most / span)
    return Found(Gain.between(lost / 2, lost), evidence, slice=None)


def _indivisible(window: Window, batch: int, devices: int) -> Found | None:
    """Judge a batch that torch splits into parts of equal size, the last one smaller."""
    if devices < 2 or batch % devices == 0:
        return None
    largest = -(-batch // devices)
    over = 1 - batch / (largest * devices)
    evidence = (
        Evidence.of("batch", window.job.measure(batch, "count")),
        Evidence.of("devices", window.job.measure(devices, "count")),
        Evidence.of("largest part", window.job.measure(largest, "count")),
    )
    severity = Severity.MEDIUM if over >= Severity.MEDIUM.least else Severity.LOW
    title = f"A batch of {batch} does not divide by {devices} devices"
    return Found(None, evidence, severity=severity, title=title, frameworks=("pytorch",))


rule = Rule(
    title="The batch does not divide evenly among the devices",
    documents=("D3 trap 1",),
    fixes={
        "jax": Fix(
            "Pad the batch to a multiple of the devices, and mask the padding.",
            """\
def filled(batch, devices):
    missing = -len(batch) % devices
    mask = jnp.arange(len(batch) + missing) < len(batch)
    rest = [(0, 0)] * (batch.ndim - 1)
    return jnp.pad(batch, [(0, missing), *rest]), mask""",
        ),
        "pytorch": Fix(
            "Choose a batch size that divides by the devices. Drop the rest of an epoch.",
            """\
batch_size = devices * (batch_size // devices)
loader = DataLoader(dataset, batch_size, drop_last=True, **as_before)""",
        ),
    },
)
