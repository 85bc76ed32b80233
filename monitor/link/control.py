"""The control socket's end at the monitor: one JSON object a line, answered in order."""

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

# An agent that says more than this in one line is no agent.
LONGEST_ANSWER = 16 * wire.MESSAGE_BYTES
Answer = tuple[str, dict[str, Any]]


class Control:
    """Asks, and takes the answers that are there; never waits unless told to."""

    def __init__(self, peer: socket.socket) -> None:
        self.closed = False
        self._peer = peer
        self._asked: deque[str] = deque()
        self._unsent = b""
        self._heard = b""

    def is_waiting_for(self, do: str) -> bool:
        """Tell whether such a message is not yet answered."""
        return do in self._asked

    def ask(self, do: str, **more: object) -> None:
        """Send a message, or as much of it as there is room for."""
        self._asked.append(do)
        self._unsent += json.dumps({"do": do, **more}).encode() + b"\n"
        self._send()

    def answers(self) -> list[Answer]:
        """Return what has been answered by now, each with what was asked."""
        self._send()
        self._receive()
        found: list[Answer] = []
        while (end := self._heard.find(b"\n")) >= 0 and not self.closed:
            line, self._heard = self._heard[:end], self._heard[end + 1 :]
            answer = _parse(line)
            if answer is None or not self._asked:
                self.close()
            else:
                found.append((self._asked.popleft(), answer))
        if len(self._heard) > LONGEST_ANSWER:
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
        """Wait until something can be heard."""
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
            # What it said before it went may still lie here to be heard.
            self._unsent = b""
            return
        self._unsent = self._unsent[sent:]

    def _receive(self) -> None:
        while not self.closed and len(self._heard) <= LONGEST_ANSWER:
            try:
                part = self._peer.recv(wire.MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self.close()
                return
            self._heard += part


def _parse(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = msgspec.json.decode(line)
        if isinstance(found, dict):
            return found
    return None
