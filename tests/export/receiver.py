"""A server that takes what is sent to it, and answers as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Instead of a status: the connection is cut, before or after the request was read.
CUT, READ_AND_CUT = -1, -2


@dataclass
class Received:
    """What came, and what is answered next; 200 in the end."""

    url: str
    answers: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiver(*answers: int, port: int = 0, location: str = "") -> Iterator[Received]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = found.answers.pop(0) if found.answers else 200
            if answer == CUT:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.bodies.append(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.paths.append(self.path)
            if answer == READ_AND_CUT:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            said = b"" if answer == 200 else b"not now\n"
            self.send_response(answer)
            if answer // 100 == 3:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            found.came.set()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        found = Received(f"http://127.0.0.1:{server.server_port}", [*answers])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
