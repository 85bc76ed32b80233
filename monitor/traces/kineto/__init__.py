"""Kineto's JSON (PyTorch's profiler), of any length and any age -> a ``Trace``."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces.kineto.assemble import assemble
from whyidle.monitor.traces.kineto.document import DamageError, Document, NoEventsError, Piece
from whyidle.monitor.traces.kineto.doubts import doubts
from whyidle.monitor.traces.kineto.numbers import InexactError
from whyidle.monitor.traces.kineto.record import decode
from whyidle.monitor.traces.kineto.rows import Rows
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.opening import Progress, Source, Stream, show

__all__ = ["read"]

# How much text is decoded at once, and how many events are read at most.
CHUNK: Final = 1 << 20
MOST_EVENTS: Final = 5_000_000


class _Reader:
    """One file on its way into columns."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.document = Document(self._take)
        self._exact = False

    def _take(self, piece: Piece) -> None:
        """Decode a list of events and keep what counts."""
        batch = decode(piece, exact=self._exact)
        try:
            self.rows.add(batch)
        except InexactError:
            # Once the times of a file are too large for floats, they stay so.
            self._exact = True
            self.rows.add(decode(piece, exact=True))

    def read(self, source: Source, stream: Stream, progress: Progress | None, chunk: int) -> str:
        """Read all there is; return why that was not all of it, if so."""
        try:
            while block := stream.read(chunk):
                self.document.feed(block)
                if progress:
                    progress(stream.consumed, source.size)
                if self.rows.events >= MOST_EVENTS:
                    return f"it has more than {MOST_EVENTS:,} events"
            self.document.finish()
        except DamageError:
            return "it is damaged in too many places"
        return stream.damage or ""


def read(source: Source, progress: Progress | None = None, *, chunk: int = CHUNK) -> Trace:
    """Read a file; what cannot be read is left out and told as a warning."""
    reader = _Reader()
    try:
        with source.open() as stream:
            ended = reader.read(source, stream, progress, chunk)
    except NoEventsError:
        raise UsageProblem(
            f"{show(source.path)} is a JSON file without a list of traceEvents.",
            "Export the trace with torch.profiler's export_chrome_trace, and name that file.",
        ) from None
    trace = assemble(reader.rows, reader.document.header)
    trace.warnings += doubts(trace, reader.rows, reader.document, ended)
    return trace
