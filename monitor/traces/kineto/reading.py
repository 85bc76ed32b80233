"""A Kineto file -> a ``Trace``, with a warning for all that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from whyidle.monitor.core.contracts.trace import CUT_OFF, READ_TO
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces.kineto.assemble import assemble
from whyidle.monitor.traces.kineto.document import DamageError, Document, NoEventsError, Piece
from whyidle.monitor.traces.kineto.numbers import InexactError
from whyidle.monitor.traces.kineto.record import decode
from whyidle.monitor.traces.kineto.rows import Rows
from whyidle.monitor.traces.kineto.scanning import scan_of
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.opening import Progress, Source, Stream, show
from whyidle.monitor.traces.stream import ahead
from whyidle.monitor.traces.stretches import Stretches

# How much text is decoded at once.
CHUNK: Final = 1 << 20


class _Reader:
    """One file on its way into columns."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._scan = scan_of(self.rows)
        self.document = Document(self._take)
        self._exact = False

    def _take(self, piece: Piece) -> None:
        """Decode a list of events and keep what counts."""
        if self._scan and self._scan.take(piece):
            return
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
            for block in ahead(stream, chunk):
                self.document.feed(block)
                if progress:
                    progress(stream.consumed, source.size)
                self.rows.make_room()
            self.document.finish()
        except DamageError:
            return "it is damaged in too many places"
        return stream.damage or ""

    def trace(self) -> Trace:
        """Return what was read."""
        header = self.document.header
        if self.rows.spill is None:
            return assemble(self.rows, header)
        trace = Trace("kineto", ticks_per_ns=1, events=self.rows.events)
        trace.stretches = Stretches(
            self.rows, self.rows.spill, lambda rows, origin: assemble(rows, header, origin)
        )
        return trace


def read(source: Source, progress: Progress | None = None, *, chunk: int = CHUNK) -> Trace:
    """Read a file; what cannot be read is left out, with a warning."""
    reader = _Reader()
    try:
        with source.open() as stream:
            ended = reader.read(source, stream, progress, chunk)
    except NoEventsError:
        raise UsageProblem(
            f"{show(source.path)} is a JSON file without a list of traceEvents.",
            "Export the trace with torch.profiler's export_chrome_trace, and name that file.",
        ) from None
    trace = reader.trace()
    trace.gpus_cut_off = bool((ended or reader.document.cut_off) and reader.document.header.devices)
    trace.warnings += _warnings(trace, reader.rows, reader.document, ended)
    return trace


def _warnings(trace: Trace, rows: Rows, document: Document, ended: str) -> list[str]:
    """Return a sentence for each kind of problem."""
    return [*_left_out(rows, document, ended), *_odd(rows), *_missing(trace)]


def _left_out(rows: Rows, document: Document, ended: str) -> Iterator[str]:
    if ended:
        yield f"{READ_TO} {rows.events:,} only: {ended}."
    elif document.cut_off:
        yield f"{CUT_OFF} after event {rows.events:,}: what follows is missing."
    if document.damaged:
        yield f"{_count(document.damaged, 'place')} of the file could not be read: it is damaged."
    if document.escaped:
        # A guess: where such a name ends is not certain.
        names = _count(document.escaped, "name")
        yield f"{names} could be read by a guess only: quotes in it are not escaped."
    if document.header_lost:
        yield "What the file says before its events could not be read."
    if document.tail_lost and not ended:
        yield "What follows the events could not be read: the file may be cut off."


def _odd(rows: Rows) -> Iterator[str]:
    if rows.unreadable:
        yield f"{_count(rows.unreadable, 'event')} could not be read: values of the wrong type."
    if rows.negative:
        yield f"{_count(rows.negative, 'event')} ended before the start: taken as without duration."
    if any(names.full for names in (rows.names, rows.kernels, rows.streams, rows.stack_names)):
        yield "The file holds too many different names: the last ones are shown as others."
    for keys, what in ((rows.threads, "threads"), (rows.devices, "devices")):
        if keys.full:
            yield f"The file names more than {len(keys):,} {what}: the others count as the last."


def _missing(trace: Trace) -> Iterator[str]:
    if trace.events and not trace.devices and not len(trace.host) and not trace.stretches:
        yield (
            "No event is of a kind that PyTorch's profiler writes: for a trace of JAX or"
            " TensorFlow, name its .xplane.pb file."
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
