"""Access control: a request needs the token, one of our host names, and our own origin."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from whyidle.dashboard.endpoint import Endpoint

TOKEN: Final = "token"  # noqa: S105  the name of a parameter
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::\d+)?", re.ASCII)
_READS: Final = {"GET", "HEAD"}
_DENIED: Final = 4403

NOT_OPENED: Final = (
    "401: This dashboard opens only with its own link.\n\n"
    "Open the link that `monitor dashboard` printed: it ends with ?token=...\n"
)
WRONG_NAME: Final = (
    "403: This dashboard does not answer to that name.\n\n"
    "Open it as 127.0.0.1, or allow the name: monitor dashboard --allow-host NAME\n"
)
WRONG_PAGE: Final = (
    "403: The request comes from another page.\n\n"
    "Open its own link. Behind a proxy: monitor dashboard --allow-host NAME-OF-THE-PROXY\n"
)
ONLY_READS: Final = "405: This dashboard is read-only.\n"
NO_PATH: Final = "400: This is not a path.\n"


class Access:
    """Middleware that checks every request before anything behind it runs."""

    def __init__(self, app: ASGIApp, *, endpoint: Endpoint, headers: Mapping[bytes, bytes]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._names = endpoint.names
        self._ticket = endpoint.ticket
        self._headers = headers
        # Cookies ignore ports, so each dashboard, also behind a tunnel, needs its own cookie name.
        self._cookie = f"whyidle_{_derived(endpoint, 'name')[:8]}"
        self._pass = _derived(endpoint, "pass")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it with a reason."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope):
            await self._refuse(scope, receive, send, *refusal)
        elif self._brings_token(scope):
            await self._log_in(scope, receive, self._with_headers(send))
        else:
            await self._app(_without_origin(scope), receive, self._with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return what is wrong with a request, the most helpful reason first."""
        host, is_http = _only(scope, b"host"), scope["type"] == "http"
        if not self._is_ours(host):
            return 403, WRONG_NAME
        if not self._is_from_us(_only(scope, b"origin"), host):
            return 403, WRONG_PAGE
        if not self._has_cookie(scope) and not (is_http and self._has_token(scope)):
            return 401, NOT_OPENED
        # A full URL in place of a path could name another machine.
        if not scope["path"].startswith("/"):
            return 400, NO_PATH
        return (405, ONLY_READS) if is_http and scope["method"] not in _READS else None

    def _is_ours(self, host: str | None) -> bool:
        found = _HOST.fullmatch(host or "")
        name = (found[1] or found[2]) if found else ""
        return name.lower().rstrip(".") in self._names

    def _is_from_us(self, origin: str | None, host: str | None) -> bool:
        """Return whether our own page asks; clients other than browsers send no origin."""
        if origin is None:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.netloc == host or parts.hostname in self._endpoint.allowed

    def _has_cookie(self, scope: Scope) -> bool:
        if self._endpoint.token is None:
            return True
        # Other programs on this machine set cookies here too, in any shape.
        pairs = (
            pair.strip().partition("=") for pair in ";".join(_all(scope, b"cookie")).split(";")
        )
        return any(name == self._cookie and _same(value, self._pass) for name, _, value in pairs)

    def _brings_token(self, scope: Scope) -> bool:
        """Return whether a browser brings a token; a websocket is not redirected."""
        is_page = scope["type"] == "http" and self._endpoint.token is not None
        return is_page and _token_in(scope) is not None

    def _has_token(self, scope: Scope) -> bool:
        given, wanted = _token_in(scope) or "", (self._endpoint.token, self._ticket)
        return any(_same(given, each) for each in wanted if each is not None)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store a pass in a cookie, and redirect so that the token leaves the shareable address."""
        if self._ticket is not None and _same(_token_in(scope) or "", self._ticket):
            self._ticket = None
        rest = urlencode([pair for pair in _query(scope) if pair[0] != TOKEN])
        # A relative redirect cannot lead to another machine or out of a proxy.
        where = f"./{quote(scope['path'].rpartition('/')[2], safe='')}"
        answer = RedirectResponse(f"{where}?{rest}" if rest else where, 303)
        answer.headers["cache-control"] = "no-store"
        answer.set_cookie(
            self._cookie,
            self._pass,
            httponly=True,
            samesite="lax",
            secure=scope["scheme"] == "https",
            path=f"/{self._endpoint.base}",
        )
        await answer(scope, receive, send)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, status: int, why: str
    ) -> None:
        if scope["type"] == "websocket":
            # Closing before accepting shows as a 403 in the browser.
            await receive()
            await send({"type": "websocket.close", "code": _DENIED})
            return
        answer = PlainTextResponse(why, status, {"cache-control": "no-store"})
        await answer(scope, receive, self._with_headers(send))

    def _with_headers(self, send: Send) -> Send:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                theirs = [
                    pair for pair in message.get("headers", ()) if pair[0] not in self._headers
                ]
                message = {**message, "headers": [*theirs, *self._headers.items()]}
            await send(message)

        return sent


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _only(scope: Scope, name: bytes) -> str | None:
    """Return a header; several different values give one that nothing allows."""
    found = set(_all(scope, name))
    return None if not found else found.pop() if len(found) == 1 else "?"


def _without_origin(scope: Scope) -> Scope:
    """Drop the origin, which is checked: Streamlit would ask an outside server for our address."""
    kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"origin"]
    return {**scope, "headers": kept}


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _token_in(scope: Scope) -> str | None:
    """Return the token in the address."""
    return dict(_query(scope)).get(TOKEN)


def _derived(endpoint: Endpoint, what: str) -> str:
    """Return a value derived from the token that does not reveal it."""
    return hmac.new((endpoint.token or "").encode(), what.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
