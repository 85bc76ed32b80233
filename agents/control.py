"""The control socket: several clients at once; none can make the others or the job wait."""

from __future__ import annotations

import _socket
import json
import os
import select
from contextlib import suppress

from .fds import Descriptor
from .peers import Peer, accept, with_socket
from .wire import LEASE_SECONDS, MESSAGE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fds import WakePipe
    from .folder import Folder

MOST_PEERS = 8
# Reads from one client a second; a monitor needs one or two.
MOST_READS = 50
# Seconds of silence: as long as a lease.
MOST_SILENT = int(LEASE_SECONDS)


class Control:
    """The listening socket and its clients; used by one thread at a time."""

    def __init__(self, folder: Folder, name: str, wake: WakePipe) -> None:
        self._folder = folder
        self._name = name
        self._wake = wake
        self._peers: list[Peer] = []
        # What the last wait was for, and the poll object for it.
        self._wanted: dict[int, int] = {}
        self._poll: Any = None
        # The job has no descriptor left: a client that waits to connect would never let us sleep.
        self._is_full = False
        self._listener = _listen(f"{folder.path}/{name}")
        self._identity = folder.identity(name)
        if self._identity is None:
            # Somebody moved the folder: our socket lies elsewhere.
            self._listener.close()
            raise OSError(folder.path)
        os.chmod(name, 0o600, dir_fd=folder.number)

    def are_ours(self) -> bool:
        """Tell whether nobody has closed our descriptors."""
        return self._listener.is_ours() and self._wake.is_ours()

    def wait(self, milliseconds: int) -> set[int]:
        """Wait for a client or a wake-up, and return the descriptors that are ready."""
        wanted = {self._wake.read.number: select.POLLIN}
        if not self._is_full:
            wanted[self._listener.number] = select.POLLIN
        for peer in self._peers:
            reads = 0 if peer.closing or peer.reads >= MOST_READS else select.POLLIN
            writes = select.POLLOUT if peer.wants_to_write() else 0
            wanted[peer.descriptor.number] = reads | writes
        if wanted != self._wanted:
            self._wanted, self._poll = wanted, select.poll()
            for number, events in wanted.items():
                self._poll.register(number, events)
        return {number for number, _ in self._poll.poll(milliseconds)}

    def serve(self, ready: set[int], answer: Callable[[int, Any], dict[str, Any]]) -> None:
        """Read what the clients send, and queue the answers."""
        if self._wake.read.number in ready:
            self._wake.answer()
        for peer in self._peers:
            if peer.descriptor.number in ready and not peer.closing:
                self._hear(peer, answer)
        if self._listener.number in ready:
            self._admit()

    def send(self, gone: Callable[[int], None] | None = None) -> None:
        """Send the answers, and close the connections of clients that are gone."""
        for peer in list(self._peers):
            peer.send()
            if (peer.closing and not peer.wants_to_write()) or not peer.descriptor.is_ours():
                self._peers.remove(peer)
                peer.descriptor.close()
                if gone is not None:
                    gone(peer.key)

    def rest(self) -> None:
        """Begin a new count of reads, once a second. A client that stays silent is closed."""
        self._is_full = False
        for peer in self._peers:
            peer.silent = 0 if peer.reads else peer.silent + 1
            peer.closing |= peer.silent > MOST_SILENT
            peer.reads = 0

    def close(self) -> None:
        """Send what can be sent, close all connections, and remove the socket."""
        self._folder.remove(self._name, self._identity)
        self.send()
        self.drop()

    def drop(self) -> None:
        """Close the descriptors and nothing else."""
        self._listener.close()
        for peer in self._peers:
            peer.descriptor.close()
        self._peers = []

    def _admit(self) -> None:
        try:
            peer = accept(self._listener.number)
        except OSError:
            self._is_full = True
            return
        if peer is None:
            return
        self._peers.append(peer)
        if len(self._peers) > MOST_PEERS:
            _refuse(peer, f"the agent has {MOST_PEERS} clients, no more fit")
            peer.closing = True

    def _hear(self, peer: Peer, answer: Callable[[int, Any], dict[str, Any]]) -> None:
        if not peer.descriptor.is_ours():
            return
        for line in peer.read():
            if len(line) > MESSAGE_BYTES:
                _refuse(peer, f"a message has at most {MESSAGE_BYTES} bytes")
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                _refuse(peer, "a message is one JSON object a line")
                continue
            _say(peer, answer(peer.key, message))
        if peer.is_too_long():
            _refuse(peer, f"a message has at most {MESSAGE_BYTES} bytes")
            peer.closing = True


def _say(peer: Peer, found: dict[str, Any]) -> None:
    peer.say(json.dumps(found).encode("ascii") + b"\n")


def _refuse(peer: Peer, why: str) -> None:
    _say(peer, {"ok": False, "why": why})


def _listen(path: str) -> Descriptor:
    found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    descriptor = Descriptor(found.detach())
    try:
        with_socket(descriptor.number, lambda bound: _bind(bound, path))
    except OSError:
        descriptor.close()
        raise
    return descriptor


def _bind(bound: _socket.socket, path: str) -> None:
    bound.bind(path)
    bound.listen(MOST_PEERS)


def is_listening(path: str) -> bool:
    """Tell whether a process listens on a socket's path."""
    found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        found.settimeout(0.0)
        found.connect(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        with suppress(OSError):
            found.close()
    return True
