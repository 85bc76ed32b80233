"""Places add up, on generated traces: against counting tick by tick."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.placing import (
    AUTOGRAD,
    ITEM,
    MAIN,
    Job,
    Op,
    Span,
    budget_of,
    hotspots,
    of_slices,
    ticks_by_place,
)
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces import launches
from whyidle.monitor.traces.budgets.budget import Budget
from whyidle.monitor.traces.causes import Cause

USERS = ("train.py(1): main", "model.py(2): f")


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Nested frames of both kinds on two threads, and kernels that some of them launch."""
    names = [*USERS, "torch/x.py(3): g", ITEM]
    spans: list[Span] = [("x", 0, 1, MAIN), ("x", 0, 1, AUTOGRAD)]

    def fill(thread: int, start: int, end: int) -> None:
        while start < end and len(spans) < 14 and draw(st.booleans()):
            a = draw(st.integers(start, end - 1))
            b = draw(st.integers(a + 1, end))
            spans.append((draw(st.sampled_from(names)), a, b, thread))
            fill(thread, a, b)
            start = b

    fill(MAIN, 0, 30)
    fill(AUTOGRAD, 0, 30)
    ops: list[Op] = []
    for i in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 30))
        kind = draw(st.sampled_from([Cause.KERNEL, Cause.COMM, Cause.H2D]))
        ops.append((start, start + draw(st.integers(1, 9)), kind, i))
        if draw(st.booleans()):
            asked = draw(st.integers(0, start))
            spans.append((f"launch{i}", asked, asked + 1, draw(st.sampled_from([0, 1]))))
    return Job(*spans, ops=tuple(sorted(ops)))


@given(jobs())
def test_places_and_what_has_none_add_up_to_each_slice(job: Job) -> None:
    budget = budget_of(job.trace)
    total = of_slices(budget)
    found = hotspots(job.trace, [budget])
    owned: Counter[Slice] = Counter()
    for hotspot in found:
        owned[hotspot.slice] += hotspot.ticks
        assert hotspot.ticks > 0
        assert sum(call.ticks for call in hotspot.calls) <= hotspot.ticks
        assert hotspot.share == hotspot.ticks / total[hotspot.slice]
    assert owned <= total
    assert idle_by_hand(job, budget) == {
        key: n for key, n in ticks_by_place(found).items() if "idle" in key[0]
    }


def idle_by_hand(job: Job, budget: Budget) -> dict[tuple[str, str, int], int]:
    """The same tick by tick, for idle time that a thread answers for, and for the queue."""
    s, ops = budget.segments, job.device.ops
    launched = launches.match(job.trace, ops)
    sums: Counter[tuple[str, str, int]] = Counter()
    for a, b, cause, thread in zip(s.start, s.end, s.cause, s.thread, strict=True):
        which = Cause(int(cause)).slice
        for tick in range(int(a), int(b)):
            name = None
            if which.idle and thread >= 0:
                name = innermost(job, int(thread), tick + budget.skew)
            elif which == Slice.IDLE_QUEUE:
                after = int(np.argmax(ops.start > tick))
                name = innermost(job, int(launched.thread[after]), int(launched.start[after]))
            if name is not None:
                file, line = name.split("):")[0].split("(")
                sums[which.value, file, int(line)] += 1
    return dict(sums)


def innermost(job: Job, thread: int, tick: int) -> str | None:
    """The name of the user's frame on this thread, else on the main one."""
    if thread < 0:
        return None
    host = job.trace.host
    users = [i for i, name in enumerate(job.names) if name in USERS]
    mine = np.isin(host.name, users)
    mains = [t for t in (MAIN, AUTOGRAD) if (mine & (host.thread == t)).any()]
    for of in (thread, *mains[:1]):
        is_open = mine & (host.start <= tick) & (tick < host.end) & (host.thread == of)
        if is_open.any():
            return job.names[int(host.name[np.flatnonzero(is_open)[-1]])]
    return None
