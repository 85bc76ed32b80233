"""Gradients are filled with zeros before each step, instead of dropped.

## What it sees
On a GPU: `zero_grad` that fills gradients (`set_to_none=False`, and PyTorch before 2.0).

## Why it costs
Extra kernels write zeros, then add to them. CPUs often gain nothing.

## How to fix
`set_to_none=True` is the default since PyTorch 2.0.

## When it is wrong
`p.grad` is then `None`, and an optimizer leaves parameters without a gradient unchanged, momentum
included. With accumulation there is little to gain.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import line_of
from whyidle.monitor.core.finding import Evidence, Found
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import ranked
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.user_lines import own

_FILLS: Final = re.compile(r".*(_foreach_zero_|\.zero_\(|\.requires_grad_\(False|\.detach_\().*")


def detect(window: Window) -> Verdict:
    """Judge the time in which gradients are filled."""
    stacks, share = window.job.stacks, 0.0
    if not stacks.samples:
        return window.lacks(Need.INSIDE)
    lines: list[tuple[CodeLine, float]] = []
    for chain, counts in stacks.chains.items():
        leaf = chain.leaf
        if leaf is None or not plays(Role.ZERO, leaf):
            continue
        if _FILLS.fullmatch(line_of(leaf.file, leaf.line) or ""):
            share += counts.samples / stacks.samples
            lines += [(line, counts.samples / stacks.samples) for line in chain.frames[:1]]
    # Without them ``zero_grad`` takes up to 3% of a step in models of many small layers.
    if share < Severity.LOW.least:
        return None
    return Found(
        # Nothing says whether the GPU waits for it, nor how long its own kernels take.
        gain=comes_back(window, 0.0, share, Side.GPU),
        evidence=(
            Evidence.of("main thread: fills gradients with zeros", window.job.sampled(share)),
        ),
        where=own(ranked((line, part / share) for line, part in lines)),
    )


rule = Rule(
    title="Gradients are filled with zeros before each step",
    fixes={
        "pytorch": Fix("Call zero_grad(set_to_none=True).", "optimizer.zero_grad(set_to_none=True)")
    },
    only=("pytorch",),
    device="gpu",
)
