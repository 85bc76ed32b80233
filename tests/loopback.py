"""A server of HTTP on loopback for one test: silent about what is asked, and about what fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def answering(request: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run it, and yield its address."""
    silent = type("Silent", (request,), {"log_message": lambda *_: None})
    with _Quiet(("127.0.0.1", 0), silent) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()
