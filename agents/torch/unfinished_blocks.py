"""Blocks of the job's own that are still open after a trace: ``EnteredBlocks`` could not end them.

They are from C++, or were begun without ``record_function``. If such a block ends while another
trace is on, it writes to what was freed with the first. So one that may last long makes a trace the
last one.
"""

from __future__ import annotations

import os

from .. import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# As Kineto writes it: each event begins like this, and its name ends with its line, or, in older
# versions, where the process's number follows. Names are not escaped.
_EVENT, _NAME, _ENDS = b'"ph": "', b'"name": "', (b'",\n', b'", "pid": ')
_OPEN, _USERS = b'"finished": false', b'"user_annotation"'
# PyTorch's own end within the step.
_SHORT = (b"Optimizer.", b"DistributedDataParallel.", b"FullyShardedDataParallel.", b"enumerate(")
# What it writes for all names with letters beyond ASCII.
_ANY = b"unknown"
# A piece is searched without a pause: half a millisecond.
_PIECE = 1 << 20
_SHOWN = 60


def unfinished_block(path: str) -> str | None:
    """Return the name of a block in the file that may last longer than a step; ``None`` for none.

    One that has also ended in the same trace recurs: it is as short as a step.
    """
    names = {_name(event) for event in _open_events(path)}
    found = sorted(name for name in names if not name.startswith(_SHORT))
    for name in found:
        if name == _ANY or not _has_ended(path, name):
            return name[:_SHOWN].decode("utf-8", "replace")
    return None


def _open_events(path: str) -> Iterator[bytes]:
    for text in _pieces(path):
        at = text.find(_OPEN)
        while at >= 0:
            event = text[max(0, text.rfind(_EVENT, 0, at)) : at]
            if _USERS in event:
                yield event
            at = text.find(_OPEN, at + 1)


def _has_ended(path: str, name: bytes) -> bool:
    marks = [_NAME + name + end for end in _ENDS]
    for text in _pieces(path):
        for mark in marks:
            at = text.find(mark)
            while at >= 0:
                end = text.find(_EVENT, at)
                if text.find(_OPEN, at, end if end >= 0 else len(text)) < 0:
                    return True
                at = text.find(mark, at + 1)
    return False


def _name(event: bytes) -> bytes:
    start = event.find(_NAME) + len(_NAME)
    ends = [at for at in (event.find(end, start) for end in _ENDS) if at >= 0]
    return event[start : min(ends, default=len(event))]


def _pieces(path: str) -> Iterator[bytes]:
    """Read the file in pieces of whole events: between two pieces other threads can run."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        rest, size = b"", 0
        while size <= wire.TRACE_FILE_CAP and (piece := os.read(handle, _PIECE)):
            size += len(piece)
            text = rest + piece
            cut = max(0, text.rfind(_EVENT))
            yield text[:cut]
            rest = text[cut:]
        yield rest
    finally:
        os.close(handle)
