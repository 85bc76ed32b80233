"""What owns an instant of a device: work, or the reason why there is none. Declared once.

The order is the priority: where two overlap, the first one owns the instant.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from whyidle.monitor.core.slices import Slice


class Cause(IntEnum):
    """One label of the account; each belongs to one slice of the budget."""

    # What a device does.
    KERNEL = 0
    HOST_WORK = 1
    EXECUTION = 2
    COPY_KERNEL = 3
    COMM = 4
    H2D_PAGEABLE = 5
    H2D = 6
    D2H_PAGEABLE = 7
    D2H = 8
    P2P = 9
    D2D = 10
    COPY = 11
    MEMSET = 12
    # What a host thread does: the specific cause before the frame around it.
    GC = 13
    CAPTURE = 14
    COMPILE = 15
    PROFILER = 16
    SYNC = 17
    ALLOCATOR = 18
    SLOW_CALL = 19
    INPUT = 20
    CHECKPOINT = 21
    OPTIMIZER = 22
    DRIVER_CALL = 23
    OP = 24
    AROUND = 25
    BLOCKED = 26
    PYTHON = 27
    # No host event at all: for a moment, or for long.
    HOLE = 28
    SILENT = 29
    # What the launches show.
    REFILL = 30
    LAUNCH_LATENCY = 31
    QUEUED = 32
    BEFORE_TRACE = 33
    LONG_QUEUE = 34
    NO_LAUNCH = 35
    TAIL = 36

    @property
    def slice(self) -> Slice:
        """The slice of the budget that this belongs to."""
        return MEANING[self][0]

    @property
    def words(self) -> str:
        """How the details of a slice name it."""
        return MEANING[self][1]


MEANING: Final[dict[Cause, tuple[Slice, str]]] = {
    Cause.KERNEL: (Slice.COMPUTE, "kernels"),
    # On a CPU backend the device's work is the operators themselves.
    Cause.HOST_WORK: (Slice.COMPUTE, "operators"),
    Cause.EXECUTION: (Slice.COMPUTE, "operators without a name"),
    # ROCm copies with kernels: they count as kernels, and are named.
    Cause.COPY_KERNEL: (Slice.COMPUTE, "copy kernels"),
    Cause.COMM: (Slice.EXPOSED_COMM, "collectives"),
    Cause.H2D_PAGEABLE: (Slice.EXPOSED_COPY, "host to device, pageable"),
    Cause.H2D: (Slice.EXPOSED_COPY, "host to device"),
    Cause.D2H_PAGEABLE: (Slice.EXPOSED_COPY, "device to host, pageable"),
    Cause.D2H: (Slice.EXPOSED_COPY, "device to host"),
    Cause.P2P: (Slice.EXPOSED_COPY, "device to device, peer"),
    Cause.D2D: (Slice.EXPOSED_COPY, "within the device"),
    Cause.COPY: (Slice.EXPOSED_COPY, "other copies"),
    Cause.MEMSET: (Slice.EXPOSED_COPY, "memset"),
    Cause.GC: (Slice.IDLE_GC, "garbage collection"),
    Cause.CAPTURE: (Slice.IDLE_COMPILE, "CUDA graph capture"),
    Cause.COMPILE: (Slice.IDLE_COMPILE, "compilation"),
    Cause.PROFILER: (Slice.IDLE_UNKNOWN, "the profiler itself"),
    Cause.SYNC: (Slice.IDLE_SYNC, "synchronisation"),
    Cause.ALLOCATOR: (Slice.IDLE_ALLOC, "allocate and free"),
    Cause.SLOW_CALL: (Slice.IDLE_ALLOC, "slow driver calls"),
    Cause.INPUT: (Slice.IDLE_INPUT, "data loader"),
    Cause.CHECKPOINT: (Slice.IDLE_IO, "checkpoint"),
    Cause.OPTIMIZER: (Slice.IDLE_DISPATCH, "optimizer"),
    Cause.DRIVER_CALL: (Slice.IDLE_DISPATCH, "driver calls"),
    Cause.OP: (Slice.IDLE_DISPATCH, "framework operators"),
    Cause.AROUND: (Slice.IDLE_DISPATCH, "framework calls"),
    Cause.BLOCKED: (Slice.IDLE_UNKNOWN, "Python waits"),
    Cause.PYTHON: (Slice.IDLE_DISPATCH, "Python"),
    Cause.HOLE: (Slice.IDLE_DISPATCH, "between recorded calls"),
    Cause.SILENT: (Slice.IDLE_UNKNOWN, "the host recorded nothing"),
    Cause.REFILL: (Slice.IDLE_DISPATCH, "refilling after a synchronisation"),
    Cause.LAUNCH_LATENCY: (Slice.IDLE_QUEUE, "launch latency"),
    Cause.QUEUED: (Slice.IDLE_QUEUE, "launched, not started"),
    Cause.BEFORE_TRACE: (Slice.IDLE_QUEUE, "launched before the trace"),
    Cause.LONG_QUEUE: (Slice.IDLE_UNKNOWN, "launched long ago, not started"),
    Cause.NO_LAUNCH: (Slice.IDLE_UNKNOWN, "the trace has no launches"),
    Cause.TAIL: (Slice.IDLE_UNKNOWN, "after the last operation"),
}

DEVICE_CAUSES: Final = range(Cause.KERNEL, Cause.GC)
COPIES: Final = range(Cause.H2D_PAGEABLE, Cause.GC)
HOST_CAUSES: Final = range(Cause.GC, Cause.HOLE)
