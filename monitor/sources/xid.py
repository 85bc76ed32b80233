"""XID errors as the driver reports them, through an event set that a separate thread waits for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from whyidle.monitor.core.reading import HUNG
from whyidle.monitor.sources.gpu import Gpu
from whyidle.monitor.sources.nvml import Nvml, Unknown

XID_EVENTS = 0x8
# How often the wait checks whether it is time to end; an event ends it at once, and nobody waits
# for the thread.
WAIT_MS = 10_000
# After any other error than that nothing came.
RETRY_SECONDS = 1.0


def watch_xids(
    nvml: Nvml,
    gpus: Sequence[Gpu],
    closing: threading.Event,
    report: Callable[[str, int], None],
) -> None:
    """Start reporting XIDs as (GPU index, code), if this driver reports them."""
    try:
        event_set = nvml.call("nvmlEventSetCreate")
    except Unknown:
        return
    whole = [g for g in gpus if g.facts.mig_of is None]
    registered = [g for g in whole if _register(nvml, g, event_set)]
    if registered:
        arguments = (nvml, registered, event_set, closing, report)
        threading.Thread(target=_wait, args=arguments, name="whyidle-xid", daemon=True).start()


def _register(nvml: Nvml, gpu: Gpu, event_set: Any) -> bool:
    try:
        nvml.call("nvmlDeviceRegisterEvents", gpu.handle, XID_EVENTS, event_set)
    except Unknown:
        return False
    return True


def _wait(
    nvml: Nvml,
    gpus: Sequence[Gpu],
    event_set: Any,
    closing: threading.Event,
    report: Callable[[str, int], None],
) -> None:
    while not closing.is_set():
        try:
            event = nvml.call("nvmlEventSetWait_v2", event_set, WAIT_MS)
        except Unknown as unknown:
            # A time-out is normal; what returns at once would spin.
            if unknown.reason != HUNG:
                closing.wait(RETRY_SECONDS)
            continue
        # By address: a GPU that has just fallen off the bus no longer reports its index.
        gpu = next((g for g in gpus if _address(g.handle) == _address(event.device)), None)
        if gpu is not None:
            report(gpu.facts.index, int(event.eventData))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
