"""Requests byte by byte: of the kinds that no browser and no library would send."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.dashboard.conftest import TOKEN

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    port: int,
    target: str = "/",
    *,
    method: str = "GET",
    hosts: tuple[str, ...] | None = None,
    websocket: bool = False,
    **headers: str,
) -> Answer:
    """Send one request; ``hosts`` are the Host headers, one of our own if not said."""
    hosts = (f"127.0.0.1:{port}",) if hosts is None else hosts
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= HANDSHAKE if websocket else {"Connection": "close"}
    lines = [f"{method} {target} HTTP/1.1", *(f"Host: {host}" for host in hosts)]
    lines += [f"{name}: {value}" for name, value in sent.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        return _read(line)


def _read(line: socket.socket) -> Answer:
    said = b""
    while b"\r\n\r\n" not in said and (piece := line.recv(65536)):
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    status = int(first.split()[1])
    # An open WebSocket has no end to wait for.
    while status != 101 and (piece := line.recv(65536)):
        body += piece
    pairs = (row.partition(":") for row in rest)
    return Answer(status, {name.lower(): value.strip() for name, _, value in pairs}, body)


def cookie(port: int, base: str = "", token: str = TOKEN) -> str:
    """Open the link, and return the cookie that is given for it."""
    answer = ask(port, f"{base}/?token={token}")
    assert answer.status == 303, answer.body
    return answer.headers["set-cookie"].partition(";")[0]


def host_of(location: str) -> str:
    """Return the machine that an address leads to, as a browser reads it."""
    return urlsplit(location.replace("\\", "/")).netloc
