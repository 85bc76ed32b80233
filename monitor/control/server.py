"""The server in the recorder: one question per connection, answered between ticks, never blocking.

Clients may be silent, slow or many: each costs a few system calls, then loses its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.control import place
from whyidle.monitor.control.asked import short
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.store import Reader
from whyidle.monitor.store.identity import host

MOST_CLIENTS: Final = 8
SILENT_SECONDS: Final = 1.0
Answer = Callable[[Mapping[str, Any]], JsonObject]


@dataclass(slots=True)
class _Client:
    """A client whose question is not complete yet."""

    line: socket.socket
    until: float
    heard: bytes = b""


class Server:
    """The socket of one recording. ``handle`` becomes readable when there is something to do."""

    def __init__(self, folder: int, run: int, answer: Answer) -> None:
        self._folder = folder
        self._run = run
        self._answer = answer
        self._clients: dict[int, _Client] = {}
        self._line, self._ours = place.bind(folder, run)
        self._ready = select.epoll()
        self._ready.register(self._line, select.EPOLLIN)
        self.handle = self._ready.fileno()

    @classmethod
    def open(cls, store: Path, run: int, answer: Answer) -> Server:
        """Listen for a recording; any obstacle raises an ``OSError``."""
        folder = place.open_folder(store, make=True)
        try:
            place.sweep(folder, partial(_is_of_here, store))
            return cls(folder, run, answer)
        except BaseException:
            os.close(folder)
            raise

    def serve(self) -> None:
        """Read what has arrived, a piece per client; never blocks, never fails."""
        try:
            self._serve()
        except Exception:  # noqa: BLE001  no client may end a recording
            for client in list(self._clients.values()):
                self._hang_up(client)

    def close(self) -> None:
        """Leave nothing behind."""
        for client in list(self._clients.values()):
            self._hang_up(client)
        place.remove(self._folder, self._run, self._ours)
        self._ready.close()
        self._line.close()
        os.close(self._folder)

    # Inside --------------------------------------------------------------------------------------
    def _serve(self) -> None:
        for handle, _ in self._ready.poll(0, MOST_CLIENTS + 1):
            if handle == self._line.fileno():
                self._accept()
            elif (client := self._clients.get(handle)) is not None:
                self._hear(client)
        now = time.monotonic()
        for client in [c for c in self._clients.values() if now >= c.until]:
            self._hang_up(client)

    def _accept(self) -> None:
        for _ in range(MOST_CLIENTS):
            try:
                line, _address = self._line.accept()
            except OSError:
                return
            try:
                self._take(line)
            except BaseException:
                line.close()
                raise

    def _take(self, line: socket.socket) -> None:
        if place.peer_of(line).uid not in {0, os.geteuid()}:
            line.close()
            return
        if len(self._clients) >= MOST_CLIENTS:
            # Drop the client that has been silent for longest.
            self._hang_up(next(iter(self._clients.values())))
        line.setblocking(False)
        client = _Client(line, time.monotonic() + SILENT_SECONDS)
        self._ready.register(line, select.EPOLLIN)
        self._clients[line.fileno()] = client
        self._hear(client)

    def _hear(self, client: _Client) -> None:
        try:
            part = client.line.recv(place.MOST_BYTES + 1 - len(client.heard))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        client.heard += part
        question, end, _ = client.heard.partition(b"\n")
        if end:
            self._say(client, self._answer_to(question))
        elif len(client.heard) > place.MOST_BYTES:
            self._say(client, refusal(_rubbish(f"of more than {place.MOST_BYTES} bytes")))
        elif not part:
            self._hang_up(client)

    def _answer_to(self, question: bytes) -> JsonObject:
        try:
            asked = json.loads(question)
            if not isinstance(asked, dict):
                return refusal(_rubbish("that is no JSON object"))
        except (ValueError, RecursionError):
            return refusal(_rubbish("that is no JSON"))
        try:
            return {"ok": True, **self._answer(asked)}
        except Problem as problem:
            return refusal(problem)
        except Exception as error:  # noqa: BLE001  whatever is asked, the recording goes on
            return refusal(
                Problem(f"The recorder failed at this ({type(error).__name__}: {error}).")
            )

    def _say(self, client: _Client, answer: JsonObject) -> None:
        # A line fits into the socket's buffer; a client that does not read it has lost its chance.
        with contextlib.suppress(OSError):
            text = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
            client.line.send(text + b"\n", socket.MSG_NOSIGNAL)
        self._hang_up(client)

    def _hang_up(self, client: _Client) -> None:
        self._clients.pop(client.line.fileno(), None)
        # A closed descriptor leaves the set by itself.
        client.line.close()


def refusal(problem: Problem) -> JsonObject:
    """Return the answer to a refused question."""
    return {"ok": False, "what": short(problem.what), "next_step": short(problem.next_step)}


def _rubbish(how: str) -> Problem:
    return UsageProblem(
        f"The recorder was sent a line {how}.", "Use the same version on both ends."
    )


def _is_of_here(store: Path, run: int) -> bool:
    """Tell whether a run was recorded on this machine; ``False`` if the run is unknown."""
    try:
        with Reader.open(store) as reader:
            return reader.find(str(run)).host == host()
    except Problem:
        return False
