"""What a person must know who reads figures from this file: what it lacks, what was left out."""

from __future__ import annotations

from collections.abc import Iterator

from whyidle.monitor.traces.kineto.document import Document
from whyidle.monitor.traces.kineto.rows import Rows
from whyidle.monitor.traces.model import Trace


def doubts(trace: Trace, rows: Rows, document: Document, ended: str) -> list[str]:
    """Return one sentence for each kind of thing that is wrong."""
    return [*_left_out(rows, document, ended), *_odd(rows), *_missing(trace)]


def _left_out(rows: Rows, document: Document, ended: str) -> Iterator[str]:
    if ended:
        yield f"The file was read up to event {rows.events:,} only: {ended}."
    elif document.cut_off:
        yield f"The file is cut off after event {rows.events:,}: what follows is missing."
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
            yield f"The file tells of more than {len(keys):,} {what}: the others count as the last."


def _missing(trace: Trace) -> Iterator[str]:
    if trace.events and not trace.devices and not len(trace.host):
        yield (
            "No event is of a kind that PyTorch's profiler writes: for a trace of JAX or"
            " TensorFlow, name its .xplane.pb file."
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
