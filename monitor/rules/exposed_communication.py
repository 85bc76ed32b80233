"""The devices wait for each other's gradients.

## What it sees
In a trace: the time in which a GPU only communicates (NCCL, RCCL, XLA's collectives). On a CPU: a
rank's waits in the framework.

## Why it costs
Many small messages each pay the latency.

## How to fix
DistributedDataParallel overlaps by buckets, `fully_shard` by prefetching. Put the busiest mesh axis
on the fastest links, and check that NCCL uses NVLink and InfiniBand (`NCCL_DEBUG=INFO`). A pipeline
needs more micro-batches.

## When it is wrong
A late rank looks the same: fix that one (`straggler_rank`). Accumulation may need another learning
rate.

## Documents
D3 trap 3 (communication takes over 40% of the step), D4 §6 (mesh axes) and D5 (accumulation). D3's
`dist.initialize(cluster_type=...)` raises: `jax.distributed.initialize()` finds the cluster, and
GPUs use NCCL anyway. D5's loop counts samples, not batches: with batches of 16 and 4 to a step, its
optimizer never steps.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.amounts import LITTLE, SURELY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.rules import Fix, Framework, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.user_lines import of_slice, own

# Ranks that share the cores of a machine wait up to 0.3 of a step for what the other does on its
# host (the bench's two towers, whatever its fault): less is no exchange that is slow.
LEAST_ON_CPU: Final = 0.4
# Of ranks on a CPU that exchange gradients of four batches at once, of five networks with 24 to 87%
# of a step in the exchange (benchmarks/exchange.py).
BACK_ON_CPU: Final = (0.6, 0.95)
# A backward pass takes about two thirds of what a device computes: no more than that can hide.
BACKWARD: Final = 2 / 3
# What two devices send each other is no reduction.
BETWEEN_TWO: Final = frozenset({"SendRecv", "Send", "Recv", "CollectivePermute"})
# Gradients are not what such devices wait for: larger buckets would change nothing.
_MORE: Final = (
    "In a pipeline, cut each batch into four parts per stage or more. Give the stages equal"
    " work. With experts, put those that talk most on the fastest links."
)
_LESS_OFTEN: Final = (
    "Exchange gradients every four batches, or make batches 4x as large. The learning rate may"
    " have to change with it."
)
OF_CPUS: Final[dict[Framework, Fix]] = {
    "pytorch": Fix(
        _LESS_OFTEN,
        """\
for number, (x, y) in enumerate(batches, start=1):
    last = number % 4 == 0
    with contextlib.nullcontext() if last else model.no_sync():
        (loss_of(model(x), y) / 4).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()""",
    ),
    "jax": Fix(_LESS_OFTEN),
}
OF_PIPELINES: Final[dict[Framework, Fix]] = {
    "pytorch": Fix(
        _MORE,
        """\
schedule = torch.distributed.pipelining.Schedule1F1B(
    stage, 4 * stages, loss_fn=loss_of
)""",
    ),
    "jax": Fix(_MORE),
}


def detect(window: Window) -> Verdict:
    """Judge the time in which a GPU only communicates."""
    if window.device == "cpu":
        return _on_cpu(window)
    trace, part = window.gpu_trace, Slice.EXPOSED_COMM
    if trace is None:
        worlds = [window.fact(name) for name in ("world_size", "devices_used")]
        known = [world for world in worlds if isinstance(world, int)]
        is_alone = bool(known) and max(known) <= 1
        return None if is_alone else window.lacks(Need.GPU_TRACE)
    exposed = trace.share(part)
    # Catalogue: over 10% of the step.
    if exposed is None or exposed.value < LITTLE:
        return None
    measure, collectives = trace.measure, trace.answer.get("collectives", ())
    whole = sum(device.get("comm_ns", 0) for device in trace.devices)
    alone = sum(device.get("exposed_comm_ns", 0) for device in trace.devices)
    count, took = sum(c["count"] for c in collectives), sum(c["total_ns"] for c in collectives)
    is_counted = count and trace.steps
    hidden, each = "communication hidden behind computing", "time of a collective"
    measures = {
        "only communicating": exposed,
        hidden: measure(1 - alone / whole, "ratio") if whole else None,
        "collectives": measure(count / trace.steps, "1/step") if is_counted else None,
        each: measure(took / count / 1e9, "s") if is_counted else None,
    }
    evidence = Evidence.known(measures)
    where = of_slice(window, part)
    if sum(c["total_ns"] for c in collectives if c["kind"] in BETWEEN_TWO) > took / 2:
        title = "The device waits for what other devices send it"
        return Found(None, evidence, where, part, Severity.MEDIUM, title, fixes=OF_PIPELINES)
    # Half of it to all that the backward pass and its launches can hide.
    room = BACKWARD * trace.taken(Slice.COMPUTE, Slice.IDLE_DISPATCH)
    most = min(exposed.value, room)
    return Found(Gain.between(SURELY * most, most), evidence, where, part)


def _on_cpu(window: Window) -> Verdict:
    """Judge the time in which ranks on a CPU wait inside the framework: for each other."""
    if (window.world_size or 1) < 2:
        return None
    host, budget = window.host, window.budget
    if host is None or budget is None:
        return window.lacks(Need.INSIDE)
    waits = budget["slices"][Slice.EXPOSED_COMM] / sum(budget["slices"].values())
    error = host.error(waits)
    if waits - error < LEAST_ON_CPU:
        return None
    low, high = BACK_ON_CPU
    return Found(
        Gain.between(low * (waits - error), high * (waits + error)),
        (Evidence.of("waiting in the exchange", window.job.sampled(waits)),),
        own(host.lines(lambda row: row.doing is HostClass.FRAMEWORK_WAIT)),
        Slice.EXPOSED_COMM,
        title="Ranks exchange gradients after every batch",
        confidence=Confidence.INFERRED,
        fixes=OF_CPUS,
    )


rule = Rule(
    title="The devices wait for each other's gradients",
    documents=("D3 trap 3", "D4 §6", "D5"),
    fixes={
        "pytorch": Fix(
            "Overlap the exchange with the backward pass, and do it less often. Use large buckets.",
            """\
model = DistributedDataParallel(
    model, gradient_as_bucket_view=True, bucket_cap_mb=50
)
for number, (x, y) in enumerate(batches, start=1):
    last = number % ACCUMULATE == 0
    with contextlib.nullcontext() if last else model.no_sync():
        (loss_of(model(x), y) / ACCUMULATE).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()""",
        ),
        "jax": Fix(
            "Let XLA overlap the exchange with compute, and use larger batches.",
            """\
options = {"xla_gpu_enable_latency_hiding_scheduler": True}
step = jax.jit(step, donate_argnums=(0,), compiler_options=options)""",
        ),
    },
)
