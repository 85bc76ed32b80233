"""The optimizer updates its parameters one by one.

## What it sees
Optimizer steps with `foreach=False` and without `fused=True`; on a CPU also with neither set.

## Why it costs
On a CPU with one thread Adam took 2.8 to 7.1 times as long in the loop as fused, Adagrad 2.2 to
3.6, SGD 0.7 to 5.6.

## How to fix
Adam, AdamW, SGD and Adagrad have `fused=True`, on CPUs since PyTorch 2.4. For others on a GPU leave
`foreach` unset. Checkpoints still fit.

## When it is wrong
`foreach` needs as much more memory as the parameters; `fused` does not. On a GPU the gain may be
zero. Steps with a closure (Lightning) are not judged.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from whyidle.monitor.core.amounts import BEYOND_CHANCE
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.operators import optimizers_of, tensors_of, time_in_optimizers
from whyidle.monitor.signals.user_lines import making

# Fewer are soon gone through, one by one or not.
LEAST_TENSORS: Final = 8
# What fused gives back of a step on a CPU, the least and the most (``benchmarks/unit_costs.py``).
FUSED: Final[dict[str, tuple[float, float]]] = {
    "Adam": (0.64, 0.86),
    "AdamW": (0.64, 0.86),
    "Adagrad": (0.53, 0.72),
    # Large tensors without momentum were slower.
    "SGD": (0.0, 0.82),
}
# Since this version, on a CPU.
FUSED_SINCE: Final = (2, 4)
# On a GPU each call of the loop is also a launch: at least what ``foreach`` gives back on a CPU of
# small tensors, at most all but one turn of twenty.
ON_GPU: Final = (0.2, 0.95)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class _Loop:
    """An optimizer of torch's that could do all of its tensors at once."""

    kind: str
    tensors: int
    # ``foreach=False`` stands in its groups; else torch has chosen so.
    is_asked: bool
    back: tuple[float, float]


def detect(window: Window) -> Verdict:
    """Judge the time in optimizers by what they say of themselves."""
    takes = time_in_optimizers(window)
    every = optimizers_of(window)
    loops = [found for each in every if (found := _loop(window, each)) is not None]
    if not loops or takes.value < BEYOND_CHANCE:
        return None
    # It is known of all of them together how long they take.
    tensors = sum(loop.tensors for loop in loops)
    share = tensors / max(1, sum(tensors_of(each) for each in every))
    least, most = (takes.value * share, takes.value) if share < 1 else (takes.value,) * 2
    low, high = min(loop.back[0] for loop in loops), max(loop.back[1] for loop in loops)
    surely = comes_back(window, least, most, Side.GPU).low if window.device == "gpu" else least
    gain = Gain.between(surely * low, most * high)
    kinds = dict.fromkeys(loop.kind for loop in loops)
    first = loops[0]
    fix = Fix(f"Make {first.kind} without foreach=False.")
    if first.kind in FUSED:
        instead = "fused=True instead of foreach=False" if first.is_asked else "fused=True"
        fix = Fix(
            f"Make the optimizer with {instead}.",
            f"optimizer = torch.optim.{first.kind}(parameters, fused=True, **as_before)",
        )
    # What torch does by itself is nobody's mistake.
    at_most = max(Severity.LOW, Severity.of_share(gain.low), key=lambda each: each.rank)
    return Found(
        gain=gain,
        evidence=(
            Evidence.of("time in optimizers", takes),
            Evidence.of(
                f"tensors of {', '.join(kinds)}, one by one", window.job.measure(tensors, "count")
            ),
        ),
        where=making(window.job, (loop.kind for loop in loops)),
        severity=None if any(loop.is_asked for loop in loops) else at_most,
        confidence=Confidence.INFERRED,
        fixes={"pytorch": fix},
    )


def _loop(window: Window, said: Mapping[str, Any]) -> _Loop | None:
    """Return it where its tensors are gone through one by one, and need not be."""
    kind, foreach, fused = str(said.get("kind")), said.get("foreach"), said.get("fused")
    on_cpu = said.get("device") == "cpu"
    chosen = foreach is None and on_cpu and fused in {None, False}
    if said.get("of_torch") is not True or fused is True or not (foreach is False or chosen):
        return None
    if tensors_of(said) < LEAST_TENSORS:
        return None
    version = _VERSION.match(str(window.job.facts.get("torch", {}).get("version")))
    since = (int(version[1]), int(version[2])) if version else (0, 0)
    if on_cpu and not (kind in FUSED and since >= FUSED_SINCE):
        # There ``foreach`` was faster for small tensors, and slower for large ones.
        return None
    return _Loop(kind, tensors_of(said), foreach is False, FUSED[kind] if on_cpu else ON_GPU)


rule = Rule(
    title="The optimizer updates its parameters one by one",
    fixes={
        "pytorch": Fix(
            "Make the optimizer with fused=True.",
            "optimizer = your_optimizer(parameters, fused=True, **as_before)",
        )
    },
    only=("pytorch",),
)
