"""Which process drives each device: a file may hold those of several, each counting its own calls.

Correlation ids are numbers of one process. Where files of several ranks were joined, one id is
carried by calls of several processes, and only timing shows to which of them an operation belongs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.launches import Index
from whyidle.monitor.traces.model import Device, Ops, Trace

# Explaining less of the work than this is more than noise of the clocks.
_AS_GOOD: Final = 0.98
# A wait from call to work that is so many times longer points to another process.
_FARTHER: Final = 2


@dataclass(frozen=True, slots=True)
class _Fit:
    """How well the calls of a process explain what a device did."""

    pid: int
    causal: int  # operations that begin after the call of their id
    known: int  # operations whose id it has
    lag: float  # the usual time from call to operation


def name_processes(trace: Trace) -> None:
    """Give each device the process that launched its work; warn where several may have."""
    index = Index(trace)
    usual = _launching_pid(trace)
    if len(index.processes) < 2:
        for device in trace.devices:
            device.pid = usual
        return
    unsure: list[tuple[Device, list[int]]] = []
    for device in trace.devices:
        likely = _likely(trace, device.ops, index)
        device.pid = likely[0] if likely else usual
        if len(likely) > 1:
            unsure.append((device, likely))
    # Ranks have devices of their own: one that surely drives another device does not drive this.
    doubtful = [device for device, _ in unsure]
    sure = {d.pid for d in trace.devices if not any(d is other for other in doubtful)}
    open_: list[str] = []
    for device, likely in unsure:
        left = [pid for pid in likely if pid not in sure] or likely
        device.pid = left[0]
        if len(left) > 1:
            open_.append(device.index)
    if open_:
        trace.warnings.append(
            "Several processes of the file launch work of the same ids: which of them launched"
            f" that of device {', '.join(open_)} is a guess."
        )


def _likely(trace: Trace, ops: Ops, index: Index) -> list[int]:
    """The processes that may have launched these operations, the likeliest first."""
    fits = [fit for pid in index.processes if (fit := _fit(trace, ops, index, pid)).known]
    if any(fit.causal for fit in fits):
        most = max(fit.causal for fit in fits)
        fits = [fit for fit in fits if fit.causal >= _AS_GOOD * most]
    else:
        most = max((fit.known for fit in fits), default=0)
        fits = [fit for fit in fits if fit.known >= _AS_GOOD * most]
    fits.sort(key=lambda fit: (fit.lag, fit.pid))
    return [fit.pid for fit in fits if fit.lag <= _FARTHER * fits[0].lag]


def _fit(trace: Trace, ops: Ops, index: Index, pid: int) -> _Fit:
    row, hit = index.of(pid).call_of(ops)
    lag = ops.start[hit] - trace.host.start[row[hit]]
    usual = float(np.median(np.abs(lag))) if len(lag) else 0.0
    return _Fit(pid, int(np.count_nonzero(lag >= 0)), len(lag), usual)


def _launching_pid(trace: Trace) -> int | None:
    """Return the process of most driver calls, or else of most host events."""
    rows: Any = trace.calls.row if len(trace.calls) else slice(None)
    pids = np.array([-1 if t.pid is None else t.pid for t in trace.threads], np.int64)
    seen = pids[trace.host.thread[rows]]
    values, counts = np.unique(seen[seen >= 0], return_counts=True)
    return int(values[counts.argmax()]) if len(values) else None
