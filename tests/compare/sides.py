"""Sides of a comparison, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whyidle.monitor.compare.sides import Level, Pace, Side, Stretch
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import Recorded, SeenGpu
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

MS = 1e6
COUNTED, OF_A_TRACE = "counted by optimizer", "those of a trace"


def pace(*ms: float, by: str = "counted", steps: int = 20) -> Pace:
    """Stretches of so many steps, each of which takes so long."""
    each = 1 if by == "trace" else steps
    stretches = tuple(Stretch(each, one * MS * each, one * MS) for one in ms)
    middle = float(np.median(ms)) * MS
    return Pace(stretches, middle, by, COUNTED if by == "counted" else OF_A_TRACE)


def noisy(ms: float, number: int = 40, seed: int = 1, by: str = "counted") -> Pace:
    """Steps around a time, two percent up and down."""
    rng = np.random.default_rng(seed)
    return pace(*rng.normal(ms, 0.02 * ms, number).tolist(), by=by)


def answer(
    slices: Mapping[Slice, int], *, steps: int = 10, devices: int = 1, **more: Any
) -> dict[str, Any]:
    """The answer of a trace of a GPU; the slices are sums over its steps and devices."""
    whole = {str(part): slices.get(part, 0) for part in Slice}
    total = sum(whole.values())
    budget = {"total_ns": total, "steps": steps, "slices": whole, "details": {}}
    median = None if not steps else total // steps // devices
    return {
        "format": "kineto",
        "warnings": [],
        "devices": [{"kind": "gpu", "index": str(i), "model": "A100"} for i in range(devices)],
        "steps": {"count": steps, "median_ns": median},
        "budget": budget,
        "step_budget": budget if steps else None,
        "top_kernels": [],
        "copies": [],
        **more,
    }


def traced(
    answer: Mapping[str, Any], took: Pace | None, label: str = "a.json", **more: Any
) -> Side:
    """The side of a trace file."""
    return Side(label, Window(label, "file", (Traced(answer, label),)), took, **more)


def recorded(
    took: Pace | None,
    means: Mapping[Metric, float] | None = None,
    label: str = "run 1",
    *,
    watts: Sequence[float] = (),
    gpu: str = "NVIDIA A100",
    facts: Mapping[str, Any] | None = None,
    **more: Any,
) -> Side:
    """The side of a recording without a trace."""
    gpus = tuple(SeenGpu(str(i), gpu, True, {m.GPU_POWER: w}) for i, w in enumerate(watts))
    job = Recorded(
        seconds=60.0, means=dict(means or {}), gpus=gpus,
        facts={"torch": dict(facts)} if facts else {}, inside=True,
    )  # fmt: skip
    memory = {"resident memory": Level(1e9, 2e9)}
    return Side(
        label, Window(label, "run", (), job, is_over=True), took, **{"memory": memory} | more
    )


def kernel(name: str, ns: int, count: int, share: float) -> dict[str, Any]:
    return {"name": name, "count": count, "total_ns": ns, "share": share}
