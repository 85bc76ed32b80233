"""One line to a server that may be down, slow or wrong: cut at its deadline, read up to a size."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Final

_PIECE: Final = 1 << 16


class TooLong(ValueError):  # noqa: N818  no defect
    """An answer goes on and on."""


@contextlib.contextmanager
def connected(
    host: str, port: int, seconds: float, *, connects: float | None = None, is_tls: bool = False
) -> Iterator[http.client.HTTPConnection]:
    """Connect, and cut the line at the deadline: one that sends a byte now and then, too.

    A host that takes no connection is given up after ``connects`` seconds already.
    """
    end = time.monotonic() + seconds
    first = seconds if connects is None else connects
    made: http.client.HTTPConnection
    if is_tls:
        context = ssl.create_default_context()
        made = http.client.HTTPSConnection(host, port, timeout=first, context=context)
    else:
        made = http.client.HTTPConnection(host, port, timeout=first)
    try:
        made.connect()
        line = made.sock
        line.settimeout(seconds)
        guard = threading.Timer(max(0.0, end - time.monotonic()), _cut, (line,))
        guard.daemon = True
        guard.start()
        try:
            yield made
        except (OSError, http.client.HTTPException):
            if time.monotonic() >= end:
                raise TimeoutError from None
            raise
        else:
            # Without a length a line that is cut looks like one that has ended.
            if time.monotonic() >= end:
                raise TimeoutError
        finally:
            guard.cancel()
    finally:
        made.close()


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def whole(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    """Return what a server says, all of it; raises TooLong."""
    pieces, size = [], 0
    while piece := response.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise TooLong
    if response.length:
        # A read of a given size does not complain that it is the last.
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(pieces)


def reason(error: Exception) -> str:
    """Return why there is no answer, in words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
