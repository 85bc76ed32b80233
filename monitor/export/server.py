"""Serves the page of a scrape over HTTP: few connections at a time, none of them for long."""

from __future__ import annotations

import base64
import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from whyidle.monitor.core.errors import NotPermitted, UsageProblem
from whyidle.monitor.export.exposition import CONTENT_TYPE
from whyidle.monitor.export.web_config import WebConfig

# A server scrapes every few seconds; whoever is slower than this is none.
SECONDS: Final = 10.0
MOST_AT_A_TIME: Final = 16
PATH: Final = "/metrics"
_TIMEOUT: Final = "X-Prometheus-Scrape-Timeout-Seconds"
_START: Final = b'<!doctype html><title>whyidle</title><a href="/metrics">Metrics</a>\n'


class Server(ThreadingHTTPServer):
    """Listens until it is closed; a request runs on a thread of its own."""

    daemon_threads = True
    allow_reuse_address = True
    # Who leaves must not wait for who reads.
    block_on_close = False

    def __init__(
        self,
        address: str,
        port: int,
        page: Callable[[], bytes],
        config: WebConfig,
        scraped: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.page = page
        self.config = config
        # Told when a server of metrics came, and by which name it calls us.
        self.scraped = scraped
        self._room = threading.BoundedSemaphore(MOST_AT_A_TIME)
        # Each connection, and until when it may last.
        self._until: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            super().__init__((address, port), _Request)
        except (OSError, OverflowError) as error:
            raise _cannot_listen(address, port, error) from None

    @property
    def url(self) -> str:
        """Where it is found."""
        name = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http{'s' if self.config.tls else ''}://{name}:{self.server_port}{PATH}"

    def start(self) -> None:
        """Serve on a thread."""
        threading.Thread(target=self.serve_forever, name="whyidle-http", daemon=True).start()

    def close(self) -> None:
        """End; who waits for an answer is let go."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without asking a name server for our name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a request unless there are too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread could be started.
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            with self._limited(request):
                request.settimeout(SECONDS)
                if self.config.tls is not None:
                    # Here and not where connections are taken: a client may be slow about it.
                    request = self.config.tls.wrap_socket(request, server_side=True)
                super().process_request_thread(request, client_address)
        except (OSError, ssl.SSLError):
            with contextlib.suppress(OSError):
                request.close()
        finally:
            self._room.release()

    @contextlib.contextmanager
    def _limited(self, request: socket.socket) -> Iterator[None]:
        # One of its own: TLS takes the one that it is given.
        with request.dup() as connection:
            self._until[connection] = time.monotonic() + SECONDS
            try:
                yield
            finally:
                del self._until[connection]

    def service_actions(self) -> None:
        """End what lasts too long: who sends a byte now and then runs into no timeout."""
        now = time.monotonic()
        for connection, until in tuple(self._until.items()):
            if now > until:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is no news."""


class _Request(BaseHTTPRequestHandler):
    server: Server
    timeout = SECONDS
    server_version = "whyidle"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer without the text."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if not self._may():
            self._send(
                HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", "text/plain", with_body=with_body
            )
        elif path == PATH:
            try:
                page = self.server.page()
            except Exception:
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"This is a defect of whyidle.\n",
                           "text/plain", with_body=with_body)  # fmt: skip
                raise
            self._send(HTTPStatus.OK, page, CONTENT_TYPE, with_body=with_body)
            # Others, who only look, send no such header.
            if with_body and _TIMEOUT in self.headers:
                self.server.scraped(self.headers.get("Host", ""))
        elif path == "/":
            self._send(HTTPStatus.OK, _START, "text/html", with_body=with_body)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"Not found\n", "text/plain", with_body=with_body)

    def _may(self) -> bool:
        if not self.server.config.users:
            return True
        kind, _, said = self.headers.get("Authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(said, validate=True).decode().partition(":")
        except ValueError:
            # Neither base64 nor text.
            return False
        return kind.lower() == "basic" and self.server.config.lets_in(user, password)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, *, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="whyidle"')
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Say nothing: a scrape every few seconds is no news."""


def _cannot_listen(address: str, port: int, error: Exception) -> UsageProblem | NotPermitted:
    at = f"{address}:{port}" if ":" not in address else f"[{address}]:{port}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return UsageProblem(
            f"Port {port} is taken: something listens at {at} already.",
            f"See what: ss -ltnp 'sport = :{port}'    Or take another: --port {port + 1}",
        )
    if number == errno.EACCES:
        return NotPermitted(f"Port {port} is for root alone.", "Take another: --port 9400")
    return UsageProblem(
        f"It cannot listen at {at}: {getattr(error, 'strerror', None) or error}.",
        "Name an address of this machine, as `ip -brief address` lists them: --address 0.0.0.0",
    )
