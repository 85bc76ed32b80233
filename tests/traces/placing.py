"""Jobs by hand: frames and operators by name, kernels, and a budget made of segments."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.traces.looking import looked_at
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.budgets.account import account
from whyidle.monitor.traces.budgets.budget import Accounted, Budget, Segments
from whyidle.monitor.traces.budgets.hosts import HostTimelines
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.launches import match
from whyidle.monitor.traces.model import EVER, Device, Links, Ops, Spans, Thread, Trace
from whyidle.monitor.traces.names import host_cause
from whyidle.monitor.traces.where.frame_names import is_frame
from whyidle.monitor.traces.where.hotspots import Hotspot, Places

MAIN, AUTOGRAD = 0, 1
LOADER = "torch/utils/data/dataloader.py(720): __next__"
ITEM = "<built-in method item of Tensor object at 0x7f0012>"

# name, start, end, thread
Span = tuple[str, int, int, int]
# start, end, cause, correlation
Op = tuple[int, int, Cause, int]


def _kind(name: str) -> Cause:
    if name.startswith("launch"):
        return Cause.DRIVER_CALL
    return host_cause("python" if is_frame(name) else "operator", name)


class Job:
    """A trace by hand; a span named ``launch1`` launches what has correlation 1."""

    def __init__(self, *spans: Span, ops: tuple[Op, ...] = (), pid: int | None = 7) -> None:
        rows = sorted(spans, key=lambda s: (s[1], -s[2]))
        self.names = list(dict.fromkeys(s[0] for s in rows))
        self.device = Device(
            "gpu",
            "0",
            Ops.of(
                start=[o[0] for o in ops],
                end=[o[1] for o in ops],
                kind=[o[2] for o in ops],
                correlation=[o[3] for o in ops],
            ),
        )
        calls = [(i, int(s[0][6:])) for i, s in enumerate(rows) if s[0].startswith("launch")]
        self.trace = Trace(
            "kineto",
            1,
            names=self.names,
            devices=[self.device],
            threads=[Thread("main", pid, str(pid)), Thread("autograd", pid, "99")],
            host=Spans.of(
                start=[s[1] for s in rows],
                end=[s[2] for s in rows],
                thread=[s[3] for s in rows],
                kind=[_kind(s[0]) for s in rows],
                name=[self.names.index(s[0]) for s in rows],
            ),
            calls=Links.of(row=[c[0] for c in calls], id=[c[1] for c in calls]),
        )

    def stacked(self, **stacks: str) -> Job:
        """Give operators call stacks."""
        of = {self.names.index(name): stack for name, stack in stacks.items()}
        rows = [i for i, name in enumerate(self.trace.host.name.tolist()) if name in of]
        ids = range(len(self.names), len(self.names) + len(rows))
        self.names += [of[int(self.trace.host.name[i])] for i in rows]
        self.trace.stacks = Links.of(row=rows, id=list(ids))
        return self

    def hotspots(self, *segments: tuple[int, int, Cause, int], skew: int = 0) -> list[Hotspot]:
        columns = {c: [s[i] for s in segments] for i, c in enumerate(Segments.columns())}
        return hotspots(self.trace, [Budget(Segments.of(**columns), skew)])


def hotspots(trace: Trace, budgets: list[Budget]) -> list[Hotspot]:
    """Return the places that own the time between the first and last operation of each device."""
    places, accounted, sums = Places(), [], []
    for device, budget in zip(trace.devices, budgets, strict=True):
        ops = device.ops
        span = (int(ops.start[0]), int(ops.end.max())) if len(ops) else (-EVER, EVER)
        accounted.append(Accounted(device, match(trace, ops), budget, span))
        sums.append(budget.sums(*np.array(span)[:, None]))
    places.add(trace, accounted)
    return places.hotspots(sums)


def ticks_by_place(found: list[Hotspot]) -> dict[tuple[str, str, int], int]:
    return {(p.slice.value, p.site.file, p.site.line): p.ticks for p in found}


def budget_of(trace: Trace, at: int = 0, window: tuple[int, int] | None = None) -> Budget:
    """Return the account of a device, from its first operation to its last if not told."""
    device, launched = trace.devices[at], match(trace, trace.devices[at].ops)
    window = window or (int(device.ops.start[0]), int(device.ops.end.max()))
    whole = looked_at(trace)
    facts = whole.accounts(whole.steps())[at].facts
    return account(trace, device, launched, HostTimelines(trace), window, facts)


def of_slices(budget: Budget) -> Counter[Slice]:
    s = budget.segments
    total: Counter[Slice] = Counter()
    for cause, length in zip(s.cause.tolist(), (s.end - s.start).tolist(), strict=True):
        total[Cause(cause).slice] += length
    return total
