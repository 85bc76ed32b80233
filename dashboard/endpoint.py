"""Where the dashboard listens, under which names it answers, and the link that opens it."""

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
# Taken where it is free, so that a link stays the same from day to day.
PORT: Final = 8765
OWN_NAMES: Final = frozenset({LOOPBACK, "localhost", "::1"})
# A token that somebody else could guess is none.
SHORTEST_TOKEN: Final = 16
_TOKEN_BYTES: Final = 32
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BASE = re.compile(r"[\w.~-]+(/[\w.~-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it listens, and for whom."""

    port: int
    address: str = LOOPBACK
    token: str | None = None
    # Good for one opening: what starts a browser stands in the list of processes.
    ticket: str | None = None
    # Other names by which it may be called: of a reverse proxy, say.
    allowed: frozenset[str] = frozenset()
    base: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Return every name that may stand in a request: others are somebody's trick."""
        own = {self.address}
        if ipaddress.ip_address(self.address).is_unspecified:
            found = [a.address for some in psutil.net_if_addrs().values() for a in some]
            own = {*found, socket.gethostname().lower()}
        return OWN_NAMES | own | self.allowed

    @property
    def link(self) -> str:
        """Return the link that opens it."""
        return self._link(self.token)

    @property
    def link_for_once(self) -> str:
        """Return a link that opens it one time."""
        return self._link(self.ticket or self.token)

    def _link(self, token: str | None) -> str:
        any_address = ipaddress.ip_address(self.address).is_unspecified
        host = socket.gethostname() if any_address else self.address
        host = f"[{host}]" if ":" in host else host
        path = f"/{self.base}/" if self.base else "/"
        return f"http://{host}:{self.port}{path}" + (f"?token={token}" if token else "")


def new_token() -> str:
    """Return words that nobody guesses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def check_token(token: str) -> str:
    """Return a token that a person has chosen, if it is long enough."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        what = f"The token is too easily guessed: it has fewer than {SHORTEST_TOKEN} letters."
        raise UsageProblem(what, "Leave it out: one is made at each start.")
    return token


def address(text: str) -> str:
    """Return an address to listen on."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        what = f"{text} is no address that a program listens on."
        raise UsageProblem(what, f"Give numbers: --address {LOOPBACK}") from None


def name(text: str) -> str:
    """Return a name by which the dashboard may be called."""
    plain = text.strip().lower().rstrip(".")
    if not _NAME.fullmatch(plain) and not _is_address(plain):
        what = f"{text} is no name of a machine."
        raise UsageProblem(what, "Leave out http:// and port: --allow-host gpu1.example.org")
    return plain


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def base(text: str) -> str:
    """Return the part of the path that is ours, without slashes around it."""
    plain = text.strip("/")
    if plain and not _BASE.fullmatch(plain):
        what = f"{text} is no path to stand under."
        raise UsageProblem(what, "Give plain words: --base-path /gpu1/whyidle")
    return plain


def at(wanted: Place, bound: socket.socket) -> Place:
    """Return a place with the port that it has got."""
    return replace(wanted, port=bound.getsockname()[1])


def listen(where: str, wished: int | None) -> socket.socket:
    """Return a socket that has its port; whoever comes early waits until ``serve`` answers."""
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
        # A port whose last owner has just ended is free.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((where, port))
        # A port is only ours once we listen: two that start together both bind it.
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
