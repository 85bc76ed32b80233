"""The monitor's end of the control socket: one JSON object a line, answered in order."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from whyidle.agents import wire

# A peer that sends more than this in one line is no agent.
LONGEST_ANSWER = 16 * wire.MESSAGE_BYTES
Answer = tuple[str, dict[str, Any]]


class Control:
    """Sends messages, and returns the answers that are there; waits only where asked to."""

    def __init__(self, peer: socket.socket) -> None:
        self.closed = False
        self._peer = peer
        self._asked: deque[str] = deque()
        self._unsent = b""
        self._received = b""

    def is_waiting_for(self, do: str) -> bool:
        """Tell whether such a message is still unanswered."""
        return do in self._asked

    def ask(self, do: str, **more: object) -> None:
        """Send a message, or as much of it as there is room for."""
        self._asked.append(do)
        self._unsent += json.dumps({"do": do, **more}).encode() + b"\n"
        self._send()

    def answers(self) -> list[Answer]:
        """Return the answers that have come, each with the message it answers."""
        self._send()
        self._receive()
        found: list[Answer] = []
        while (end := self._received.find(b"\n")) >= 0 and not self.closed:
            line, self._received = self._received[:end], self._received[end + 1 :]
            answer = _parse(line)
            if answer is None or not self._asked:
                self.close()
            else:
                found.append((self._asked.popleft(), answer))
        if len(self._received) > LONGEST_ANSWER:
            self.close()
        return found

    def wait_for(self, do: str, seconds: float) -> Mapping[str, Any] | None:
        """Return the answer to a message; ``None`` when none comes in time."""
        deadline = time.monotonic() + seconds
        while not self.closed:
            for asked, answer in self.answers():
                if asked == do:
                    return answer
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.wait(left)
        return None

    def wait(self, seconds: float) -> None:
        """Wait until something can be read."""
        if not self.closed:
            poll = select.poll()
            poll.register(self._peer, select.POLLIN)
            poll.poll(seconds * 1000)

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._peer.close()

    def _send(self) -> None:
        if self.closed or not self._unsent:
            return
        try:
            sent = self._peer.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            # What it sent before it went may still wait to be read.
            self._unsent = b""
            return
        self._unsent = self._unsent[sent:]

    def _receive(self) -> None:
        while not self.closed and len(self._received) <= LONGEST_ANSWER:
            try:
                part = self._peer.recv(wire.MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self.close()
                return
            self._received += part


def _parse(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = msgspec.json.decode(line)
        if isinstance(found, dict):
            return found
    return None
