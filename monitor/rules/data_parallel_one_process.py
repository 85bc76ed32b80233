"""nn.DataParallel copies the model to all GPUs in every step.

## What it sees
`DataParallel` on the stack or in a trace, with several GPUs.

## Why it costs
All GPUs wait while the first sends the model and gathers gradients. One Python process drives them
all.

## How to fix
Divide the loader's batch size by the number of GPUs.

## When it is wrong
Notebooks cannot easily start several processes. Small models copy quickly.

## Documents
D3 §1 and D5 (several GPUs). PyTorch's documentation also advises against DataParallel.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.amounts import SURELY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.account import ranked
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.user_lines import own

NAME: Final = "DataParallel"
# As the profiler names the same: a range of the wrapper, and the functions of autograd in it.
_CALLS: Final = r"DataParallel\.forward|Broadcast(Backward)?|ReduceAddCoalesced(Backward)?"


def detect(window: Window) -> Verdict:
    """Find the wrapper, and what it takes."""
    job, trace, around = window.job, window.gpu_trace, window.fact("parallel")
    said = isinstance(around, str) and NAME in around.split(", ")
    replicates, spreads = (
        sum(leaf.share for leaf in job.leaves if plays(role, leaf))
        for role in (Role.REPLICATE, Role.SPREAD)
    )
    devices = [] if trace is None else list(trace.devices)
    pids = {device.get("pid") for device in devices if device["kind"] == "gpu"}
    calls = trace is not None and len(pids) == 1 and len(devices) > 1 and bool(trace.calls(_CALLS))
    # A sample or two may be of a model that is only made.
    if not said and replicates < Severity.LOW.least and not calls:
        is_known = job.inside or bool(job.leaves) or trace is not None
        return None if is_known else window.lacks(Need.INSIDE)
    gpus = window.needed(_gpus(window), Need.GPU, "how many of them the process uses")
    if gpus.value < 2:
        return None
    gain = _gain(window, spreads)
    measures = {
        "main thread in its code": job.sampled(replicates) if replicates else None,
        "of it copying, gathering": job.sampled(spreads) if spreads else None,
    }
    for name, part in (("only such copies run", Slice.EXPOSED_COPY),
                       ("only communication runs", Slice.EXPOSED_COMM)):  # fmt: skip
        alone = None if trace is None else trace.share(part)
        measures[name] = alone if alone and alone.value >= Severity.LOW.least else None
    confidence = Confidence.INFERRED if trace is None else Confidence.MEASURED
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("GPUs of one process", gpus),
            *([job.said("around the model", f"nn.{NAME}")] if said else ()),
            *Evidence.known(measures),
        ),
        where=_where(window),
        slice=Slice.IDLE_DISPATCH,
        severity=None if gain else Severity.MEDIUM,
        confidence=confidence if gain else Confidence.HINTED,
        frameworks=("pytorch",),
    )


def _gpus(window: Window) -> Measure | None:
    """Return how many GPUs the process uses."""
    trace, used = window.gpu_trace, window.fact("devices_used")
    if trace is not None and len(trace.devices) > 1:
        return trace.measure(len(trace.devices), "count")
    if isinstance(used, int):
        return window.job.measure(used, "count")
    return window.job.measure(len(window.gpus), "count", "nvml") if window.gpus else None


def _gain(window: Window, spreads: float) -> Gain | None:
    """Return what comes back: the copies of the model, and the turns that the threads take."""
    trace = window.gpu_trace
    if trace is not None:
        moved = trace.taken(Slice.EXPOSED_COMM, Slice.EXPOSED_COPY)
        return Gain.between(SURELY * moved, moved + trace.taken(Slice.IDLE_DISPATCH))
    if spreads < Severity.LOW.least:
        return None
    return comes_back(window, SURELY * spreads, spreads, Side.HOST)


def _where(window: Window) -> tuple[Place, ...]:
    """Return the lines that call the model through it, the most frequent first."""
    total = window.job.stacks.samples or 1.0
    return own(
        ranked(
            (chain.frames[0], counts.samples / total)
            for chain, counts in window.job.stacks.chains.items()
            if chain.frames and plays(Role.REPLICATE, chain.leaf)
        )
    )


rule = Rule(
    title="nn.DataParallel copies the model to all GPUs in every step",
    documents=("D3 §1", "D5"),
    fixes={
        "pytorch": Fix(
            "Start one process per GPU: torchrun --nproc-per-node=gpu train.py.",
            """\
torch.distributed.init_process_group()
device = torch.device("cpu")
if torch.accelerator.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
# in place of nn.DataParallel(model)
model = DistributedDataParallel(model.to(device))
# in place of shuffle=True: a sampler that shuffles for each rank
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler, **as_before)""",
        )
    },
    only=("pytorch",),
)
