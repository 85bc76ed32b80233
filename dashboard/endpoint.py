"""Where the dashboard listens, which host names it answers to, and the link that opens it."""

from __future__ import annotations

import errno
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, replace
from typing import Final

import psutil

from whyidle.monitor.core.errors import UsageProblem

LOOPBACK: Final = "127.0.0.1"
# Used if it is free, so that the link stays the same from day to day.
PORT: Final = 8765
OWN_NAMES: Final = frozenset({LOOPBACK, "localhost", "::1"})
# A token that can be guessed protects nothing.
SHORTEST_TOKEN: Final = 16
_TOKEN_BYTES: Final = 32
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BASE = re.compile(r"[\w.~-]+(/[\w.~-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the dashboard listens, and for whom."""

    port: int
    address: str = LOOPBACK
    token: str | None = None
    # Valid once: the command that starts a browser is visible in the list of processes.
    ticket: str | None = None
    # Further host names, such as that of a reverse proxy.
    allowed: frozenset[str] = frozenset()
    base: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Return every host name that a request may use."""
        own = {self.address}
        if ipaddress.ip_address(self.address).is_unspecified:
            found = [a.address for some in psutil.net_if_addrs().values() for a in some]
            own = {*found, socket.gethostname().lower()}
        return OWN_NAMES | own | self.allowed

    @property
    def link(self) -> str:
        """Return the link that opens the dashboard."""
        return self._link(self.token)

    @property
    def link_for_once(self) -> str:
        """Return a link that works once."""
        return self._link(self.ticket or self.token)

    def _link(self, token: str | None) -> str:
        any_address = ipaddress.ip_address(self.address).is_unspecified
        host = socket.gethostname() if any_address else self.address
        host = f"[{host}]" if ":" in host else host
        path = f"/{self.base}/" if self.base else "/"
        return f"http://{host}:{self.port}{path}" + (f"?token={token}" if token else "")


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def check_token(token: str) -> str:
    """Return a token chosen by the user, if it is long enough."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        what = f"The token is too easily guessed: it has fewer than {SHORTEST_TOKEN} characters."
        raise UsageProblem(what, "Leave it out: one is made at each start.")
    return token


def address(text: str) -> str:
    """Return the text as an address to listen on."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        what = f"{text} is not an address to listen on."
        raise UsageProblem(what, f"Give numbers: --address {LOOPBACK}") from None


def name(text: str) -> str:
    """Return the text as a host name."""
    plain = text.strip().lower().rstrip(".")
    if not _NAME.fullmatch(plain) and not _is_address(plain):
        what = f"{text} is not a host name."
        raise UsageProblem(what, "Leave out http:// and port: --allow-host gpu1.example.org")
    return plain


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def base(text: str) -> str:
    """Return the base path, without slashes around it."""
    plain = text.strip("/")
    if plain and not _BASE.fullmatch(plain):
        what = f"{text} is not a valid path."
        raise UsageProblem(what, "Give plain words: --base-path /gpu1/whyidle")
    return plain


def at(wanted: Endpoint, bound: socket.socket) -> Endpoint:
    """Return the endpoint with the port that was bound."""
    return replace(wanted, port=bound.getsockname()[1])


def listen(where: str, wished: int | None) -> socket.socket:
    """Return a bound socket; early requests wait until ``serve`` answers."""
    try:
        return _bound(where, PORT if wished is None else wished)
    except OSError as error:
        if wished is None and error.errno == errno.EADDRINUSE:
            return _bound(where, 0)
        raise _cannot(where, wished, error) from None


def _bound(where: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    bound = socket.socket(family)
    try:
        # A port whose last owner has just ended counts as free.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((where, port))
        # A port is ours only once we listen: two programs starting together may both bind it.
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


def _cannot(where: str, wished: int | None, error: OSError) -> UsageProblem:
    if error.errno == errno.EADDRNOTAVAIL:
        what = f"The dashboard cannot listen on {where}: this machine has no such address."
        return UsageProblem(what, f"Leave out --address: it listens on {LOOPBACK}.")
    what = f"The dashboard cannot listen on port {wished or PORT} of {where}: {error.strerror}."
    return UsageProblem(what, "Leave out --port: a free one is found.")
