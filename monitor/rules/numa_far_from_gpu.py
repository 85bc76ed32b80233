"""The process runs on another NUMA node than its GPU.

## What it sees
The main thread runs on another NUMA node than its GPUs. Memory is not inspected.

## Why it costs
Copies cross the sockets: 4 to 12 GB/s instead of 24 in DeepSpeed issue 1576.

## How to fix
Bind before the start: existing memory stays where it is.

## When it is wrong
A job that copies little, or ahead of its use, loses nothing: without a trace no gain is given.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Framework, Need, Rule, Severity, Slice, Verdict, Window

# 4 instead of 24 GB/s, the worst of the report above.
BACK_MOST: Final = 1 - 4 / 24


def detect(window: Window) -> Verdict:
    """Judge where the processes with a GPU run."""
    far = window.needed(
        window.job.mean(m.JOB_FAR_FROM_GPU),
        Need.GPU,
        window.job.unknown.get(m.JOB_FAR_FROM_GPU, ""),
    )
    # A process that may run anywhere is near as often as far.
    if far.value < NEARLY_ALL or window.device == "cpu":
        return None
    nodes = {gpu.index: gpu.info.get("numa_node") for gpu in window.gpus}
    known = {index: node for index, node in nodes.items() if node is not None}
    copies, measure = window.share(Slice.EXPOSED_COPY), window.job.measure
    measures = {f"node of GPU {i}": measure(node, "count", "procfs") for i, node in known.items()}
    return Found(
        None if copies is None else Gain.between(0.0, BACK_MOST * copies.value),
        Evidence.known(
            {"looks that found it at another node": far, **measures, "only copies run": copies}
        ),
        slice=None if copies is None else Slice.EXPOSED_COPY,
        severity=Severity.LOW,
        confidence=Confidence.HINTED,
        fixes=_fixes(sorted(set(known.values()))),
    )


def _fixes(nodes: list[int]) -> dict[Framework, Fix]:
    text = (
        "Start each process on the node of its GPU, with numactl. nvidia-smi topo -m shows the"
        " nodes."
    )
    if len(nodes) == 1:
        bound = f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]} python train.py"
        text = f"Start it on the NUMA node of its GPU. Type: {bound}."
    return {"pytorch": Fix(f"{text} All ranks: torchrun --numa-binding=node."), "jax": Fix(text)}


rule = Rule(title="The process runs on another NUMA node than its GPU", fixes=_fixes([]))
