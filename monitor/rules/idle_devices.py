"""Some of the devices do no work.

## What it sees
Devices that hold nothing, or hardly compute in a trace.

## Why it costs
A JAX or PyTorch program runs on one device unless it is distributed.

## How to fix
In PyTorch use `fully_shard` if the model is too large for one GPU. If all devices wait for the
host, fix that first.

## When it is wrong
Hide devices for other programs with CUDA_VISIBLE_DEVICES. A small batch divides badly. Devices
simulated on a CPU get no gain.

## Documents
D1 §2, D3, D4 §5-6 and D5. `PositionalSharding`, `pjit` and `Shard` are gone or never were: use
NamedSharding with `jax.make_mesh`, whose axes must be Auto for ordinary code. D1 puts the data on
one GPU and asks for all, which raises; `pmap` is the old way, and copies the weights to each
device.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import of_slice
from whyidle.monitor.traces.causes import MEANING, Cause

# D3 trap 3: sharded jobs with too much communication use 60% of their devices; the best, all.
SCALES_LEAST: Final = 0.6
# All take part already: there is no batch to divide.
HOST_FIRST: Final = Fix(
    "Find what the host does meanwhile, and fix that. Trace it with Python's frames, and give"
    " each launch more to do. Splitting the batch further does not help."
)


def detect(window: Window) -> Verdict:
    """Compare the devices that there are with those that work."""
    trace = window.gpu_trace
    traced = _of_trace(trace)
    there, used = traced or _of_facts(window) or (None, None)
    if there is None or used is None:
        # A trace of one device, or a rank among many, is no such job.
        is_one = trace is not None or window.fact("world_size")
        is_known = is_one or (window.job.inside and window.frameworks)
        return None if is_known else window.lacks(Need.INSIDE)
    if used < there:
        return _unused(window, there, used, trace if traced else None)
    return _hardly(trace) if traced and trace is not None else None


def _of_trace(trace: Traced | None) -> tuple[int, int] | None:
    """Return the devices in a trace, and those that took part."""
    if trace is None or len(trace.devices) < 2:
        return None
    work = [device.get("compute_ns", 0) for device in trace.devices]
    return len(work), sum(each > LITTLE * max(work) for each in work)


def _of_facts(window: Window) -> tuple[int, int] | None:
    """Return the devices that the process could use, and those that it does.

    One of several ranks has a device of its own and sees the others'.
    """
    for facts in window.job.facts.values():
        there, used = facts.get("devices"), facts.get("devices_used")
        if (facts.get("world_size") or 1) == 1 and isinstance(there, int) and used:
            return there, min(int(used), there)
    return None


def _unused(window: Window, there: int, used: int, trace: Traced | None) -> Found:
    measure = window.job.measure if trace is None else trace.measure
    on_cpu, compute = window.device == "cpu", window.share(Slice.COMPUTE)
    faster = max(1.0, _enough(window, there, used) / used)
    gain, severity = None, Severity.HIGH
    title = f"{used} of {there} devices {'does' if used == 1 else 'do'} all the work"
    if on_cpu and faster * SCALES_LEAST < 1:
        # More devices on the same cores may well be slower: the program is only not made for more.
        severity = Severity.INFO
        title += "; they share the cores"
    elif compute is not None:
        # What comes back where that divides among all devices which each takes on a thread or
        # stream of its own, and nothing else does.
        divides = compute.value
        if window.trace is not None and on_cpu:
            # A device that the CPU plays is a thread: the calls around its operations, and what
            # lies between these, are its own as well.
            labels = [MEANING[cause][1] for cause in (Cause.AROUND, Cause.HOLE)]
            around = [window.trace.detail(Slice.IDLE_DISPATCH, label) for label in labels]
            divides += sum(each.value for each in around if each is not None)
        low = divides * (1 - 1 / max(1.0, faster * SCALES_LEAST))
        gain = Gain.between(low, divides * (1 - 1 / faster))
    evidence = (
        Evidence.of("devices there", measure(there, "count")),
        Evidence.of("devices that work", measure(used, "count")),
    )
    where = of_slice(window, Slice.COMPUTE)
    return Found(gain, evidence, where, Slice.COMPUTE, None if gain else severity, title)


def _enough(window: Window, there: int, used: int) -> float:
    """Return how many devices can work at a time: those that a CPU plays share its cores."""
    cores, busy = window.cores, window.job.mean(m.JOB_CPU)
    if window.device != "cpu" or cores is None:
        return there
    each = max(1.0, (busy.value if busy else 1.0) / used)
    return min(there, cores.value / each)


def _hardly(trace: Traced) -> Found | None:
    """Judge devices that all took part, and all waited nearly all of the time."""
    spans = [device["span_ns"] for device in trace.devices]
    work = sum(device.get("busy_ns", 0) for device in trace.devices)
    # All together do less than one could.
    if work >= max(spans):
        return None
    evidence = [
        Evidence.of("devices there", trace.measure(len(spans), "count")),
        Evidence.of("work of all, in devices", trace.measure(work / max(spans), "count")),
    ]
    unknown = trace.share(Slice.IDLE_UNKNOWN)
    if unknown is not None and unknown.value:
        # What is not recorded is no fault of a device: it must be said before a cause is believed.
        evidence.append(Evidence.of("idle, and the trace does not say why", unknown))
        labels = trace.account["details"].get(Slice.IDLE_UNKNOWN) or {"": 0}
        mostly = max(labels, key=lambda label: labels[label])
        if mostly:
            evidence.append(Evidence("of that it only knows", mostly, "", trace.source))
    return Found(
        None,
        tuple(evidence),
        severity=Severity.MEDIUM,
        title=f"{len(spans)} devices together do less than one could",
        fixes=dict.fromkeys(("jax", "pytorch", "tensorflow"), HOST_FIRST),
    )


rule = Rule(
    title="Some of the devices do no work",
    documents=("D1 §2", "D3", "D4 §5-6", "D5"),
    fixes={
        "jax": Fix(
            "Split the batch across all devices, and keep the parameters on each.",
            """\
axes = (jax.sharding.AxisType.Auto,)
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=axes)
divided = NamedSharding(mesh, PartitionSpec("data"))
whole = NamedSharding(mesh, PartitionSpec())
params = jax.device_put(params, whole)
for batch in batches:
    params = step(params, jax.device_put(batch, divided))""",
        ),
        "pytorch": Fix(
            "Start one process per GPU: torchrun --nproc-per-node=gpu train.py.",
            """\
torch.distributed.init_process_group()
device = torch.device("cpu")
if torch.accelerator.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(model.to(device))
# in place of shuffle=True: a sampler that shuffles for each rank
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler, **as_before)""",
        ),
        "tensorflow": Fix(
            "Build the model in the scope of a MirroredStrategy.",
            """\
with tf.distribute.MirroredStrategy().scope():
    model = build_model()""",
        ),
    },
)
