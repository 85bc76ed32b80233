"""nn.DataParallel drives several GPUs from one process and copies the model at each step.

## What it sees
What is around the model, as the agent finds it on the stack: `DataParallel`; the samples that found
the main thread in PyTorch's code for it; in a trace of several GPUs of one process its calls. Only
where several GPUs are in use: on one it calls the model and does nothing else.

## Why it costs
In each step the first GPU sends the whole model to all others, cuts the batch, gathers the results
and the gradients, and computes the loss, while the others wait for it. All GPUs are driven by
threads of one Python process, which take turns: the more GPUs, the less each gets to do.

## How to fix
One process for each GPU, started by `torchrun`, and DistributedDataParallel around the model: each
process keeps its copy, reads its own part of the data (DistributedSampler), and the gradients are
added up while the backward pass still runs. Divide the batch size of the loader by the number of
GPUs.

## When it is wrong
A program that cannot be started several times, in a notebook for one, gains little from threads but
has no easy other way. Where the batch is large and the model small the copies are short.

## Documents
D3 §1 and D5 (several GPUs). PyTorch's own documentation advises against DataParallel, too.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Need,
    Place,
    Severity,
    Verdict,
)
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Rule
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import own
from whyidle.monitor.signals.window import Window

NAME: Final = "DataParallel"
# As the profiler names the same: a range of the wrapper, and the functions of autograd in it.
_CALLS: Final = r"DataParallel\.forward|Broadcast(Backward)?|ReduceAddCoalesced(Backward)?"
# A sample or two may be of a model that is only made.
LEAST: Final = 0.01
# The gradients have to be added up in any case, where nothing covers that.
BACK_LEAST: Final = 0.5


def detect(window: Window) -> Verdict:
    """Find the wrapper, and what it takes."""
    said = _said(window)
    sampled = _share(window, Role.REPLICATE)
    calls = None if window.gpu_trace is None else _calls(window.gpu_trace)
    if not said and sampled < LEAST and not calls:
        is_known = window.job.inside or bool(window.job.leaves) or window.gpu_trace is not None
        return None if is_known else window.lacks(Need.INSIDE)
    gpus = window.needed(_gpus(window), Need.GPU, "how many of them the process uses")
    if gpus.value < 2:
        return None
    gain = _gain(window)
    return Found(
        gain=gain,
        evidence=tuple(_evidence(window, gpus, said=said)),
        where=_where(window),
        slice=Slice.IDLE_DISPATCH,
        severity=None if gain else Severity.MEDIUM,
        confidence=_confidence(window, gain),
        frameworks=("pytorch",),
    )


def _said(window: Window) -> bool:
    """Tell whether the agent saw it around the model."""
    around = window.fact("parallel")
    return isinstance(around, str) and NAME in around.split(", ")


def _calls(trace: Traced) -> bool:
    """Tell whether one process drives several GPUs by it, as far as the trace names its calls."""
    pids = {device.get("pid") for device in trace.devices if device["kind"] == "gpu"}
    return len(trace.devices) > 1 and len(pids) == 1 and bool(trace.calls(_CALLS))


def _gpus(window: Window) -> Measure | None:
    """Return how many GPUs the process uses."""
    trace, used = window.gpu_trace, window.fact("devices_used")
    if trace is not None and len(trace.devices) > 1:
        return trace.measure(len(trace.devices), "count")
    if isinstance(used, int):
        return window.job.measure(used, "count")
    owned = sum(gpu.owned for gpu in window.job.gpus)
    return window.job.measure(owned, "count", "nvml") if owned else None


def _share(window: Window, role: Role) -> float:
    return sum(leaf.share for leaf in window.job.leaves if plays(role, leaf))


def _gain(window: Window) -> Gain | None:
    """Return what comes back: the copies of the model, and the turns that the threads take."""
    trace, copies = window.gpu_trace, _share(window, Role.SPREAD)
    if trace is None:
        return (
            comes_back(window, BACK_LEAST * copies, copies, Side.HOST) if copies >= LEAST else None
        )
    exposed = [trace.share(part) for part in (Slice.EXPOSED_COMM, Slice.EXPOSED_COPY)]
    moved = sum(part.value for part in exposed if part is not None)
    turns = trace.share(Slice.IDLE_DISPATCH)
    return Gain.between(BACK_LEAST * moved, moved + (0.0 if turns is None else turns.value))


def _confidence(window: Window, gain: Gain | None) -> Confidence:
    if gain is None:
        return Confidence.HINTED
    return Confidence.INFERRED if window.gpu_trace is None else Confidence.MEASURED


def _evidence(window: Window, gpus: Measure, *, said: bool) -> list[Evidence]:
    found = [Evidence.of("GPUs of one process", gpus)]
    if said:
        age, seconds = window.job.age_s, window.job.seconds
        found.append(Evidence("around the model", f"nn.{NAME}", "", "agent", age, seconds))
    for name, role in (("main thread in its code", Role.REPLICATE),
                       ("of it copying, gathering", Role.SPREAD)):  # fmt: skip
        if share := _share(window, role):
            found.append(Evidence.of(name, window.job.sampled(share)))
    if window.gpu_trace is not None:
        for name, part in (("only such copies run", Slice.EXPOSED_COPY),
                           ("only communication runs", Slice.EXPOSED_COMM)):  # fmt: skip
            if (alone := window.gpu_trace.share(part)) is not None and alone.value >= LEAST:
                found.append(Evidence.of(name, alone))
    return found


def _where(window: Window) -> tuple[Place, ...]:
    """Return the lines that call the model through it, the most frequent first."""
    places: dict[tuple[str, int, str], float] = {}
    total = window.job.stacks.samples or 1.0
    for chain, counts in window.job.stacks.chains.items():
        if chain.frames and plays(Role.REPLICATE, chain.leaf):
            line = chain.frames[0]
            key = line.file, line.line, line.function
            places[key] = places.get(key, 0.0) + counts.samples / total
    ordered = sorted(places.items(), key=lambda item: -item[1])
    return own(Place(*key, share) for key, share in ordered)


rule = Rule(
    title="nn.DataParallel drives several GPUs from one process and copies the model at each step",
    documents=("D3 §1", "D5"),
    fixes={
        "pytorch": Fix(
            "One process for each GPU, started with: torchrun --nproc-per-node=gpu train.py.",
            """\
torch.distributed.init_process_group()
device = torch.device("cpu")
if torch.accelerator.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(model.to(device))  # in place of nn.DataParallel(model)
loader = DataLoader(dataset, batch_size=64, sampler=DistributedSampler(dataset))""",
        ),
    },
    only=("pytorch",),
    detect=detect,
)
