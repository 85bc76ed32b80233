"""A file of any format that we read -> one ``Trace``."""

from __future__ import annotations

from pathlib import Path

from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.opening import Progress, identify


def load(path: Path, progress: Progress | None = None) -> Trace:
    """Read a trace file, or raise a ``Problem`` that says what the file looks like."""
    source = identify(path)
    if source.format == "xplane":
        from whyidle.monitor.traces import xplane  # noqa: PLC0415  the other reader is not needed

        trace = xplane.read(source, progress)
    elif source.format == "nsys":
        from whyidle.monitor.traces import nsys  # noqa: PLC0415

        trace = nsys.read(source, progress)
    else:
        from whyidle.monitor.traces import kineto  # noqa: PLC0415

        trace = kineto.read(source, progress)
    # What is read from disk stretch by stretch is corrected there.
    if trace.stretches is None:
        correct(trace)
    return trace
