"""Who may look: whoever has the link with its token, under a name that is ours, from our page."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from whyidle.dashboard.endpoint import Place

TOKEN: Final = "token"  # noqa: S105  the name of a parameter
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::\d+)?", re.ASCII)
_READS: Final = {"GET", "HEAD"}
_DENIED: Final = 4403

NOT_OPENED: Final = (
    "401: This dashboard opens by its own link only.\n\n"
    "Open the link that `monitor dashboard` has printed: it ends with ?token=...\n"
)
WRONG_NAME: Final = (
    "403: This dashboard does not answer to that name.\n\n"
    "Open it as 127.0.0.1, or allow the name: monitor dashboard --allow-host NAME\n"
)
WRONG_PAGE: Final = (
    "403: Another page asks for this dashboard.\n\n"
    "Open its own link. Behind a proxy: monitor dashboard --allow-host NAME-OF-THE-PROXY\n"
)
ONLY_READS: Final = "405: This dashboard takes nothing.\n"
NO_PATH: Final = "400: This is no path.\n"


class Access:
    """Lets through who is allowed; nothing behind it is asked before."""

    def __init__(self, app: ASGIApp, *, place: Place, headers: Mapping[bytes, bytes]) -> None:
        self._app = app
        self._place = place
        self._names = place.names
        self._ticket = place.ticket
        self._headers = headers
        # Cookies know no ports: each dashboard, also behind a tunnel, has a name of its own for it.
        self._cookie = f"whyidle_{_derived(place, 'name')[:8]}"
        self._pass = _derived(place, "pass")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say why not."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope):
            await self._refuse(scope, receive, send, *refusal)
        elif self._is_to_be_welcomed(scope):
            await self._welcome(scope, receive, self._with_headers(send))
        else:
            await self._app(_without_origin(scope), receive, self._with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return what is wrong with a request, with the most telling first."""
        host, is_http = _only(scope, b"host"), scope["type"] == "http"
        if not self._is_ours(host):
            return 403, WRONG_NAME
        if not self._is_from_us(_only(scope, b"origin"), host):
            return 403, WRONG_PAGE
        if not self._has_cookie(scope) and not (is_http and self._has_token(scope)):
            return 401, NOT_OPENED
        # A whole address where a path belongs is another way to name a machine.
        if not scope["path"].startswith("/"):
            return 400, NO_PATH
        return (405, ONLY_READS) if is_http and scope["method"] not in _READS else None

    def _is_ours(self, host: str | None) -> bool:
        found = _HOST.fullmatch(host or "")
        name = (found[1] or found[2]) if found else ""
        return name.lower().rstrip(".") in self._names

    def _is_from_us(self, origin: str | None, host: str | None) -> bool:
        """Tell whether a page of ours asks; programs that are no browser do not say whose it is."""
        if origin is None:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.netloc == host or parts.hostname in self._place.allowed

    def _has_cookie(self, scope: Scope) -> bool:
        if self._place.token is None:
            return True
        # Other programs of this machine have cookies here too, in whatever shape.
        pairs = (
            pair.strip().partition("=") for pair in ";".join(_all(scope, b"cookie")).split(";")
        )
        return any(name == self._cookie and _same(value, self._pass) for name, _, value in pairs)

    def _is_to_be_welcomed(self, scope: Scope) -> bool:
        """Tell whether a browser comes with a token; a line of ours stays where it is."""
        is_page = scope["type"] == "http" and self._place.token is not None
        return is_page and _told(scope) is not None

    def _has_token(self, scope: Scope) -> bool:
        told, wanted = _told(scope) or "", (self._place.token, self._ticket)
        return any(_same(told, each) for each in wanted if each is not None)

    async def _welcome(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep a pass in a cookie, and the token out of the address that a person may pass on."""
        if self._ticket is not None and _same(_told(scope) or "", self._ticket):
            self._ticket = None
        rest = urlencode([pair for pair in _query(scope) if pair[0] != TOKEN])
        # Said from where the browser is, the way leads to no other machine and out of no proxy.
        where = f"./{quote(scope['path'].rpartition('/')[2], safe='')}"
        answer = RedirectResponse(f"{where}?{rest}" if rest else where, 303)
        answer.headers["cache-control"] = "no-store"
        answer.set_cookie(
            self._cookie,
            self._pass,
            httponly=True,
            samesite="lax",
            secure=scope["scheme"] == "https",
            path=f"/{self._place.base}",
        )
        await answer(scope, receive, send)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, status: int, why: str
    ) -> None:
        if scope["type"] == "websocket":
            # Closed before it was accepted: the browser sees a 403.
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
    """Return a header; of several that differ, none that anything would allow."""
    found = set(_all(scope, name))
    return None if not found else found.pop() if len(found) == 1 else "?"


def _without_origin(scope: Scope) -> Scope:
    """Take out what is checked: Streamlit would ask a server outside who we are, to check it."""
    kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"origin"]
    return {**scope, "headers": kept}


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _told(scope: Scope) -> str | None:
    """Return the token that stands in the address."""
    return dict(_query(scope)).get(TOKEN)


def _derived(place: Place, what: str) -> str:
    """Return words that tell nothing of the token, the same for the same one."""
    return hmac.new((place.token or "").encode(), what.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
