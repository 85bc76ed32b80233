"""A file of any format that we read -> one ``Trace``."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.opening import Progress, identify

# M_ARENA_MAX, M_MMAP_THRESHOLD (no more is allowed), M_TRIM_THRESHOLD of glibc's mallopt.
_MALLOC: Final = {-8: 1, -3: 32 << 20, -1: 64 << 20}


@cache
def _keep_freed_memory() -> None:
    """Have the allocator keep what is freed for the next column, which needs as much.

    Else each one is given back to the system and comes back as pages to be filled with zeros: a
    tenth of the time, and a tenth of the memory, as each thread keeps a heap of its own.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another libc than glibc
        return
    for option, value in _MALLOC.items():
        mallopt(option, value)


def load(path: Path, progress: Progress | None = None) -> Trace:
    """Read a trace file, or raise a ``Problem`` that says what the file looks like."""
    source = identify(path)
    _keep_freed_memory()
    if source.format == "xplane":
        from whyidle.monitor.traces import xplane  # noqa: PLC0415  the other reader is not needed

        trace = xplane.read(source, progress)
    elif source.format == "nsys":
        from whyidle.monitor.traces import nsys  # noqa: PLC0415

        trace = nsys.read(source, progress)
    else:
        from whyidle.monitor.traces import kineto  # noqa: PLC0415

        trace = kineto.read(source, progress)
    # Stretches are corrected as they are read.
    if trace.stretches is None:
        correct(trace)
    return trace
