"""One client of the control socket: whole lines in and out, without waiting."""

from __future__ import annotations

import _socket
import os
import struct
from contextlib import suppress
from itertools import count

from .fds import Descriptor
from .wire import MESSAGE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

# A client with more unsent answers than this does not read them.
MOST_UNSENT = 16 * MESSAGE_BYTES
_CREDENTIALS = struct.Struct("3i")
_keys = count()


def with_socket(number: int, act: Callable[[_socket.socket], T]) -> T:
    """Use a descriptor as a non-blocking socket, without owning it."""
    found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, number)
    try:
        # The job may have set a time-out for all new sockets.
        found.settimeout(0.0)
        return act(found)
    finally:
        found.detach()


class Peer:
    """A connected client."""

    __slots__ = ("_inbox", "_outbox", "closing", "descriptor", "key", "reads", "silent")

    def __init__(self, number: int) -> None:
        self.descriptor = Descriptor(number)
        self.key = next(_keys)
        self.reads = 0
        # Seconds in a row without a message from it.
        self.silent = 0
        # Nothing more is read from it; it is closed once its answers are sent.
        self.closing = False
        self._inbox = b""
        self._outbox = b""

    def is_allowed(self) -> bool:
        """Tell whether it is root or our own user, according to the kernel."""
        raw = with_socket(self.descriptor.number, _credentials)
        return _CREDENTIALS.unpack(raw)[1] in {0, os.geteuid()}

    def read(self) -> list[bytes]:
        """Return the whole lines that are there; one read only, so that all are served."""
        self.reads += 1
        try:
            part = os.read(self.descriptor.number, MESSAGE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            part = b""
        if not part:
            self.closing = True
        *lines, self._inbox = (self._inbox + part).split(b"\n")
        return lines

    def is_too_long(self) -> bool:
        """Tell whether the incoming line is longer than a message may be."""
        return len(self._inbox) > MESSAGE_BYTES

    def say(self, line: bytes) -> None:
        """Queue an answer."""
        self._outbox += line
        if len(self._outbox) > MOST_UNSENT:
            self._outbox = b""
            self.closing = True

    def wants_to_write(self) -> bool:
        """Tell whether answers wait to be sent."""
        return bool(self._outbox)

    def send(self) -> None:
        """Send as much as it accepts."""
        if not self._outbox or not self.descriptor.is_ours():
            return
        try:
            sent = with_socket(self.descriptor.number, self._send)
        except BlockingIOError:
            return
        except OSError:
            self._outbox = b""
            self.closing = True
            return
        self._outbox = self._outbox[sent:]

    def _send(self, through: _socket.socket) -> int:
        # A job that dies of SIGPIPE must do so by its own pipes alone.
        return through.send(self._outbox, _socket.MSG_NOSIGNAL)


def _credentials(of: _socket.socket) -> bytes:
    return of.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)


def _accept(listener: Any) -> tuple[int, Any]:
    # What ``socket.accept`` is built on.
    found: tuple[int, Any] = listener._accept()
    return found


def accept(listener: int) -> Peer | None:
    """Return the next client, if it may be one; raises OSError where none can come in."""
    try:
        number, _ = with_socket(listener, _accept)
    except (BlockingIOError, ConnectionAbortedError):
        return None
    peer = Peer(number)
    with suppress(OSError):
        os.set_blocking(number, False)
        if peer.is_allowed():
            return peer
    peer.descriptor.close()
    return None
