"""A server of PromQL that says what a test wants it to, well or badly."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl

from tests.loopback import answering

# What a query finds: labels and a value each.
Found = Sequence[tuple[Mapping[str, str], float]]


def success(found: Found, **more: object) -> bytes:
    """Return an answer as the real ones write it; the values are of now."""
    rows = [{"metric": dict(labels), "value": [time.time(), str(v)]} for labels, v in found]
    data = {"resultType": "vector", "result": rows}
    return json.dumps({"status": "success", "data": data, **more}).encode()


@dataclass
class Asked:
    path: str
    form: dict[str, str]
    headers: Mapping[str, str]


@dataclass
class Server:
    """It answers a query by the first of these words that stands in it; else with nothing."""

    answers: dict[str, Callable[[BaseHTTPRequestHandler, dict[str, str]], None] | Found] = field(
        default_factory=dict
    )
    # How far its clock is before ours.
    ahead: float = 0.0
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        query = form["query"]
        for words, found in self.answers.items():
            if words in query:
                if callable(found):
                    found(request, form)
                else:
                    say(request, success(found))
                return
        if query == "time()":
            now = time.time() + self.ahead
            data = {"resultType": "scalar", "result": [now, str(now)]}
            say(request, json.dumps({"status": "success", "data": data}).encode())
        else:
            say(request, success(()))


def say(
    request: BaseHTTPRequestHandler,
    body: bytes,
    status: int = 200,
    kind: str = "application/json",
    length: int | None = None,
    **headers: str,
) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body) if length is None else length))
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


def fails(error: str, status: int = 422) -> Callable[..., None]:
    body = json.dumps({"status": "error", "errorType": "execution", "error": error}).encode()
    return lambda request, _: say(request, body, status)


def breaks_off(request: BaseHTTPRequestHandler, _form: object) -> None:
    """Promise more than comes."""
    body = success([({"instance": "node1"}, 1.0)] * 100)
    say(request, body[: len(body) // 2], length=len(body))
    request.close_connection = True


def drips(request: BaseHTTPRequestHandler, _form: object) -> None:
    """Send a byte now and then, so that no read of it runs into a timeout."""
    request.send_response(200)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    while True:
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.05)


def says(body: bytes, **more: Any) -> Callable[..., None]:
    return lambda request, _: say(request, body, **more)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run it on loopback."""

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            form = dict(parse_qsl(self.rfile.read(size).decode()))
            server.asked.append(Asked(self.path, form, dict(self.headers)))
            try:
                server.answer(self, form)
            except OSError:
                # Whoever asked has gone.
                self.close_connection = True

    with answering(Request) as server.url:
        yield server


def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
