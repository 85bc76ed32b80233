"""Whether anything works in a job whose main threads stand: what kernel and driver counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.signals.awaited import Awaited
from whyidle.monitor.signals.standstill import Standstill

# Of samples of a thread that waits, the few in which it polls.
WAITS: Final = 0.9
# Agents, and threads that poll, take some (eight jobs that hung: 0.002 to 0.015 cores).
LEAST_CORES: Final = 0.05
LEAST_BYTES: Final = 100e3
LEAST_SHARE: Final = 0.02
# An idle H100 draws a tenth of its limit, one that trains more than half; one that only polls for
# others was not measured, and cannot draw much while it touches no memory.
BUSY: Final = 0.9
IDLE_POWER: Final = 0.4
_DISK: Final = (m.JOB_DISK_READ, m.JOB_DISK_WRITE)
_NETWORK: Final = (m.JOB_NET_RX, m.JOB_NET_TX)


def works(still: Standstill) -> bool:
    """Tell whether anything goes on in the job, as far as it is counted."""
    means = still.means
    if any(means.get(metric, 0.0) >= LEAST_BYTES for metric in _DISK):
        return True
    if means.get(m.JOB_COMPILE, 0.0) >= LEAST_SHARE:
        return True
    if any(_computes(gpu) for gpu in still.gpus):
        return True
    if any(map(_only_polls, still.gpus)):
        # The thread that waits for such a GPU may poll as well.
        return False
    cores = means.get(m.JOB_CPU)
    own = 0.0 if cores is None else cores - means.get(m.JOB_AGENT_CPU, 0.0)
    waits = all(each.waits is None or each.waits >= WAITS for each in still.stands)
    known = cores is not None or all(each.waits is not None for each in still.stands)
    return own >= LEAST_CORES or not waits or not known


def are_known(gpus: Sequence[Mapping[Metric, float]]) -> bool:
    """Tell whether it is known of each GPU whether it computes; the driver hides it under MIG."""
    return bool(gpus) and all(m.GPU_SM_ACTIVITY in g or m.GPU_UTILISATION in g for g in gpus)


def _computes(gpu: Mapping[Metric, float]) -> bool:
    active = gpu.get(m.GPU_SM_ACTIVITY, gpu.get(m.GPU_UTILISATION, 0.0))
    return active >= LEAST_SHARE and not _only_polls(gpu)


def _only_polls(gpu: Mapping[Metric, float]) -> bool:
    """Tell whether a kernel runs that waits for other GPUs: no memory traffic, little power."""
    power, limit = gpu.get(m.GPU_POWER), gpu.get(m.GPU_POWER_LIMIT)
    if power is None or not limit or m.GPU_MEMORY_BANDWIDTH not in gpu:
        return False
    works = max(gpu[m.GPU_MEMORY_BANDWIDTH], gpu.get(m.GPU_TENSOR_ACTIVITY, 0.0))
    busy = gpu.get(m.GPU_UTILISATION, 0.0) >= BUSY
    return busy and works < LEAST_SHARE and power < IDLE_POWER * limit


def may_be_coming(still: Standstill, what: Awaited) -> bool:
    """Tell whether what it waits for may be on its way; others use the network as well."""
    if what not in {Awaited.INPUT, Awaited.SAVING, Awaited.LOADER}:
        return False
    return any(still.means.get(metric, 0.0) >= LEAST_BYTES for metric in _NETWORK)
