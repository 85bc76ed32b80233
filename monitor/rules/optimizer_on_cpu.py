"""The optimizer runs on the CPU, and the GPU waits for it.

## What it sees
Parameters and optimizer state on the CPU, in a process that uses a GPU: offloaded by DeepSpeed or
FSDP, or a model moved in part.

## Why it costs
GPU memory moves 2 to 3 TB a second, the host's 0.1 to 0.3.

## How to fix
AdamW needs two numbers for each parameter on the GPU. If they do not fit, shard (ZeRO stage 2 or 3,
`fully_shard`), or use an optimizer with less state.

## When it is wrong
If the model fits in no other way, accumulate. Steps with a closure (Lightning) are not judged.

## Documents
Beyond the five documents. In DeepSpeed issue 6834 a step took 10 s with it and 0.2 s without.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.operators import optimizers_of, time_in_optimizers
from whyidle.monitor.signals.user_lines import asking

# Data sheets: 2.0 to 3.4 TB/s (A100, H100) beside 0.3 at most of a host with 8 channels: a sixth
# stays at most. At least a fiftieth, as in the issue named above.
BACK: Final = (0.83, 0.98)
_ASKS: Final = re.compile(r"offload_optimizer|offload_param|CPUOffload|cpu_offload|\bCPUAdam\(")


def detect(window: Window) -> Verdict:
    """Judge where the optimizers are, and how long they take."""
    takes = time_in_optimizers(window)
    every, used = optimizers_of(window), window.fact("devices_used")
    here = [each for each in every if "cpu" in {each.get("device"), each.get("state_device")}]
    on_gpu = any(each.get("device") not in {"cpu", None} for each in every)
    has_gpu = on_gpu or (isinstance(used, int) and used > 0)
    # An optimizer of a few numbers beside another one takes less.
    if not here or not has_gpu or takes.value < Severity.MEDIUM.least:
        return None
    idle = comes_back(window, takes.value, takes.value, Side.GPU)
    return Found(
        gain=Gain.between(idle.low * BACK[0], idle.high * BACK[1]),
        evidence=(
            Evidence.of("time in optimizers", takes),
            *(
                Evidence.of(
                    f"tensors of {each.get('kind')} on the CPU",
                    window.job.measure(float(each.get("tensors", 0)), "count"),
                )
                for each in here[:3]
            ),
        ),
        where=asking(window.job, _ASKS),
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="The optimizer runs on the CPU, and the GPU waits for it",
    fixes={
        "pytorch": Fix(
            "Make the optimizer after the model is on the GPU. Leave offloading off (DeepSpeed:"
            " no offload_optimizer) where the state fits; else shard it over the GPUs.",
            """\
model = model.to(device)
optimizer = your_optimizer(model.parameters(), **as_before)""",
        )
    },
    only=("pytorch",),
)
