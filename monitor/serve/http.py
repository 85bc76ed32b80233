"""The way in over HTTP: this machine alone, and only who knows the token.

Everybody on a machine can reach its loopback: the token lies in a file of the user's own.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
from pathlib import Path
from typing import Any, Final

import uvicorn

from whyidle.monitor.core.errors import Problem, StorageProblem
from whyidle.monitor.core.paths import state_dir

LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/mcp"
FILE: Final = "mcp.token"
_LEAST: Final = 16


def token() -> tuple[str, Path]:
    """Return the token of this user, and where it lies; the first time one is made."""
    path = state_dir() / FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return _read(path), path
        with os.fdopen(handle, "w") as file:
            made = secrets.token_urlsafe(32)
            file.write(f"{made}\n")
    except OSError as error:
        raise StorageProblem(
            f"The token cannot be kept in {path}: {error.strerror}.",
            "Choose another folder: WHYIDLE_STATE_DIR=/path/to/folder",
        ) from None
    return made, path


def _read(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle) as file:
        status = os.fstat(file.fileno())
        is_private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
        found = file.read(1000).strip() if is_private and status.st_uid == os.geteuid() else ""
    if len(found) < _LEAST:
        raise StorageProblem(
            f"{path} is no token that only you can read.",
            f"Remove it, a new one is made: rm {path}",
        )
    return found


class Guard:
    """Lets through who has the token."""

    def __init__(self, app: Any, expected: str) -> None:
        self._app = app
        self._expected = f"Bearer {expected}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not self._knows(scope):
            head = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": head})
            await send({"type": "http.response.body", "body": b"It needs the token.\n"})
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Any) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


def listen(port: int) -> socket.socket:
    """Return a socket on the loopback; 0 is any free port."""
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise Problem(
            f"Port {port} cannot be had: {error.strerror}.", "Another one: monitor mcp --http 0"
        ) from None


def serve(app: Any, expected: str, line: socket.socket) -> None:
    """Serve until Ctrl-C."""
    guarded: Any = Guard(app, expected)
    config = uvicorn.Config(guarded, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[line])
