"""An agent as ``wire`` describes it, without anything inside: it says what a test tells it to.

Run as a program (the parent of its folder may be named) it prints ``ready`` and takes orders, one a
line of its input: ``write JSON`` and
``raw TEXT`` put a line into the spool, ``empty`` empties it, ``hang`` answers no more, ``kept``
stays when one leaves, ``bye`` ends the agent while the process lives on, ``exit`` ends both. Each
order is answered by ``done``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from whyidle.agents import wire


class FakeAgent:
    def __init__(self, parent: str = wire.FOLDERS[0]) -> None:
        self.folder = Path(parent) / wire.folder_name(os.geteuid())
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.spool = self.folder / wire.spool_name(os.getpid())
        self.path = self.folder / wire.socket_name(os.getpid())
        self.epoch = 0
        self.hangs = False
        self.is_kept = False
        self.asked: list[dict[str, Any]] = []
        self.facts = {"version": wire.VERSION, "pid": os.getpid(), "method": "ptrace"}
        self._file = os.open(self.spool, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._listener.listen()
        self._clients: list[socket.socket] = []
        self.greet()
        threading.Thread(target=self._serve, daemon=True).start()

    def greet(self) -> None:
        self.write("hello", self.facts)
        self.write("clock", *wire.clock_pair()[1:])

    def write(self, kind: str, *values: object) -> None:
        self.raw(json.dumps([kind, time.monotonic_ns(), *values]))

    def raw(self, text: str) -> None:
        os.write(self._file, text.encode("utf-8", "surrogateescape") + b"\n")

    def empty(self) -> None:
        os.ftruncate(self._file, 0)
        self.epoch += 1
        self.greet()

    def end(self, reason: str) -> None:
        self.write("bye", reason)
        self.close()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.spool.unlink(missing_ok=True)

    def close(self) -> None:
        self.remove()
        for peer in (self._listener, *self._clients):
            # Another thread waits in it: closing alone would not wake it.
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(peer)
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        try:
            for line in peer.makefile("rb"):
                while self.hangs:
                    time.sleep(0.01)
                message = json.loads(line)
                self.asked.append(message)
                leaves = message["do"] == "leave" and not self.is_kept
                if leaves:
                    self.write("bye", "detached")
                    self.remove()
                peer.sendall(json.dumps(self._answer(message)).encode() + b"\n")
                if leaves:
                    self.close()
        except OSError:
            return

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["do"] == "hello":
            return {"ok": True, **self.facts, "spool": self.spool.name, "epoch": self.epoch}
        return {"ok": True, "size": os.fstat(self._file).st_size, "epoch": self.epoch}


def main() -> None:
    agent = FakeAgent(*sys.argv[1:])
    print("ready", flush=True)
    for order in sys.stdin:
        what, _, text = order.rstrip("\n").partition(" ")
        if what == "write":
            agent.write(*json.loads(text))
        elif what == "raw":
            agent.raw(text)
        elif what == "bye":
            agent.end("lease")
        elif what in {"hang", "kept"}:
            agent.hangs, agent.is_kept = what == "hang", what == "kept"
        elif what == "empty":
            agent.empty()
        elif what == "exit":
            agent.end("exit")
            break
        print("done", flush=True)


if __name__ == "__main__":
    main()
